package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Cycle is rule 15: no cycle of "was read by" and "ended before the other began" (which includes the order within a
// process) among operations, a transaction being one vertex. Orders of offsets are no edges: records of concurrent
// transactions may interleave, which Kafka allows. Only reads under read_committed count.
func Cycle(x *Index, _ Options) (found []Violation) {
	g := newGraph(x)
	for _, component := range g.components() {
		// Moments in time are in a component only together with operations.
		var ops []*Op
		var names []string
		for _, v := range g.smallestCycle(component) {
			if vertex := g.vertices[v]; vertex.name != "" {
				names = append(names, vertex.name)
				ops = append(ops, vertex.ops...)
			}
		}
		found = append(found, broken(ops, "cycle: %s", strings.Join(names, " -> ")))
	}
	return found
}

// vertex is an operation, a transaction, or (without a name) a moment in time.
type vertex struct {
	name             string
	invoke, complete int64
	ops              []*Op // evidence
}

type graph struct {
	vertices []vertex
	edges    [][]int
}

func newGraph(x *Index) *graph {
	g := &graph{}
	of := map[*Op]int{}
	txns := map[int64]int{}
	for _, o := range x.Ops {
		if o.Kind != Send && (o.Kind != Poll || !o.Committed || o.Final) && o.Kind != End {
			continue
		}
		v, ok := txns[o.Txn]
		if o.Txn == 0 || !ok {
			v = len(g.vertices)
			g.vertices = append(g.vertices, vertex{name: string(o.Kind) + " of " + o.Process, invoke: o.Invoke})
			if o.Txn != 0 {
				txns[o.Txn] = v
				g.vertices[v].name = fmt.Sprintf("transaction %d", o.Txn)
			}
		}
		of[o] = v
		complete := o.Complete
		if o.Type != OK {
			complete = Never // it may take effect later
		}
		g.vertices[v].complete = max(g.vertices[v].complete, complete)
		if o.Txn != 0 && o.Kind == End && len(x.Txns[o.Txn].Ends) == 1 && o.Type == OK {
			g.vertices[v].complete = o.Complete
		}
	}
	for id, v := range txns {
		if t := x.Txns[id]; t.Fate != Committed {
			g.vertices[v].complete = Never
		}
	}
	g.edges = make([][]int, len(g.vertices))
	g.addReads(x, of)
	g.addTime()
	return g
}

// addReads leads an edge from each sender to each reader.
func (g *graph) addReads(x *Index, of map[*Op]int) {
	for _, o := range x.Ops {
		reader, ok := of[o]
		if !ok || o.Kind != Poll {
			continue
		}
		seen := map[int]bool{}
		for i := range o.Records {
			r := &o.Records[i]
			s := x.Sends[r.Value.Key()]
			if r.Bad != "" || s == nil {
				continue
			}
			sender := of[s]
			if sender != reader && !seen[sender] {
				seen[sender] = true
				g.edges[sender] = append(g.edges[sender], reader)
				if v := &g.vertices[reader]; len(v.ops) < 4 {
					v.ops = append(v.ops, onlyRecord(o, ofValue(r.Value.Key())))
				}
				if v := &g.vertices[sender]; len(v.ops) < 4 {
					v.ops = append(v.ops, s)
				}
			}
		}
	}
}

// addTime leads an edge from each vertex to each that began after it ended, by way of a chain of moments, so that their
// number stays linear.
func (g *graph) addTime() {
	n := len(g.vertices)
	byEnd := make([]int, 0, n)
	byStart := make([]int, n)
	for v := range n {
		byStart[v] = v
		if g.vertices[v].complete != Never {
			byEnd = append(byEnd, v)
		}
	}
	slices.SortFunc(byEnd, func(a, b int) int { return cmp.Compare(g.vertices[a].complete, g.vertices[b].complete) })
	slices.SortFunc(byStart, func(a, b int) int { return cmp.Compare(g.vertices[a].invoke, g.vertices[b].invoke) })
	moment, next := -1, 0
	for _, v := range byStart {
		for ; next < len(byEnd) && g.vertices[byEnd[next]].complete < g.vertices[v].invoke; next++ {
			g.vertices = append(g.vertices, vertex{})
			g.edges = append(g.edges, nil)
			m := len(g.vertices) - 1
			g.edges[byEnd[next]] = append(g.edges[byEnd[next]], m)
			if moment >= 0 {
				g.edges[moment] = append(g.edges[moment], m)
			}
			moment = m
		}
		if moment >= 0 {
			g.edges[moment] = append(g.edges[moment], v)
		}
	}
}

// components are the strongly connected ones of more than one vertex, by Tarjan's algorithm without recursion.
func (g *graph) components() (found [][]int) {
	n := len(g.vertices)
	index, low, on := make([]int, n), make([]int, n), make([]bool, n) // index 0: not visited
	var stack []int
	counter := 0
	type frame struct{ v, edge int }
	for root := range n {
		if index[root] != 0 {
			continue
		}
		calls := []frame{{root, 0}}
		for len(calls) > 0 {
			f := &calls[len(calls)-1]
			v := f.v
			if f.edge == 0 {
				counter++
				index[v], low[v], on[v] = counter, counter, true
				stack = append(stack, v)
			}
			if f.edge < len(g.edges[v]) {
				w := g.edges[v][f.edge]
				f.edge++
				if index[w] == 0 {
					calls = append(calls, frame{w, 0})
				} else if on[w] {
					low[v] = min(low[v], index[w])
				}
				continue
			}
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				parent := calls[len(calls)-1].v
				low[parent] = min(low[parent], low[v])
			}
			if low[v] == index[v] {
				i := slices.Index(stack, v)
				if component := slices.Clone(stack[i:]); len(component) > 1 {
					found = append(found, component)
				}
				for _, w := range stack[i:] {
					on[w] = false
				}
				stack = stack[:i]
			}
		}
	}
	return found
}

// smallestCycle is a shortest cycle through some vertex of a component.
func (g *graph) smallestCycle(component []int) (best []int) {
	in := map[int]bool{}
	for _, v := range component {
		in[v] = true
	}
	for _, start := range component[:min(len(component), 50)] {
		from := map[int]int{}
		queue := []int{start}
		for len(queue) > 0 {
			v := queue[0]
			queue = queue[1:]
			for _, w := range g.edges[v] {
				if w == start {
					cycle := []int{v}
					for u := v; u != start; {
						u = from[u]
						cycle = append(cycle, u)
					}
					slices.Reverse(cycle)
					if best == nil || len(cycle) < len(best) {
						best = cycle
					}
					queue = nil
					break
				}
				if _, ok := from[w]; in[w] && !ok {
					from[w] = v
					queue = append(queue, w)
				}
			}
		}
	}
	return best
}
