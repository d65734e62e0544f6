package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// completionTime is how long a completion may ask the broker before it stays silent.
const completionTime = 300 * time.Millisecond

func newCompletionCmd() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a completion script for your shell",
		Long: `Print a completion script for your shell.

Names of topics and groups are asked of the broker while you type; when it does not
answer within 0.3 seconds the completion stays silent.`,
		Example: `  source <(pgbroker completion bash)
  pgbroker completion zsh > "${fpath[1]}/_pgbroker"
  pgbroker completion fish > ~/.config/fish/completions/pgbroker.fish
  pgbroker completion powershell | Out-String | Invoke-Expression`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(shells, args[0]) {
				return fmt.Errorf("completion needs the name of one shell: %s", strings.Join(shells, ", "))
			}
			return nil
		},
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeCompletion(cmd.Root(), args[0], cmd.OutOrStdout())
		},
	}
}

func writeCompletion(root *cobra.Command, shell string, w io.Writer) error {
	switch shell {
	case "bash":
		return root.GenBashCompletionV2(w, true)
	case "zsh":
		return root.GenZshCompletion(w)
	case "fish":
		return root.GenFishCompletion(w, true)
	}
	return root.GenPowerShellCompletionWithDesc(w)
}

type completer = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

// completeTopics completes the names of topics, at most limit arguments (0: any number).
func completeTopics(g *globals, limit int) completer {
	return completeNames(g, limit, func(ctx context.Context, adm *kadm.Client) []string {
		topics, err := adm.ListTopics(ctx)
		if err != nil {
			return nil
		}
		return topics.Names()
	})
}

// completeGroups completes the names of groups, at most limit arguments (0: any number).
func completeGroups(g *globals, limit int) completer {
	return completeNames(g, limit, func(ctx context.Context, adm *kadm.Client) []string {
		groups, err := adm.ListGroups(ctx)
		if err != nil {
			return nil
		}
		return groups.Groups()
	})
}

func completeNames(g *globals, limit int, list func(context.Context, *kadm.Client) []string) completer {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		const silent = cobra.ShellCompDirectiveNoFileComp
		if limit > 0 && len(args) >= limit {
			return nil, silent
		}
		if g.begin(cmd) != nil {
			return nil, silent
		}
		if cmd.Context() == nil {
			cmd.SetContext(context.Background())
		}
		g.verbose, g.timeout = false, completionTime
		answer := make(chan []string, 1)
		// The client may hang in a dial past its deadline; the shell must not wait for it.
		go func() {
			c, err := g.connect(cmd)
			if err != nil {
				answer <- nil
				return
			}
			defer c.close()
			ctx, cancel := c.bounded()
			defer cancel()
			answer <- list(ctx, c.adm)
		}()
		var names []string
		select {
		case names = <-answer:
		case <-time.After(completionTime):
		}
		var matching []string
		for _, n := range names {
			if strings.HasPrefix(n, toComplete) {
				matching = append(matching, n)
			}
		}
		return matching, silent
	}
}
