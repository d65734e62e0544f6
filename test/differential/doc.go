// Package differential asks the same raw requests of pgbroker and of Apache Kafka and compares the answers.
//
// A script (testdata/scripts/*.txt) is a list of cases over topics, groups and transactional ids of its own. What Kafka 4.4.0
// answered is in testdata/golden, under the checksum of its jar; `make golden` records it anew, and every run of the tests
// compares ours with it. A case that differs is a bug, unless a row of docs/deviations.md names it in a comment
//
//	<!-- cases: script/case, script/other-case@* -->
//
// and then what we answer instead is held in testdata/ours (go test ./test/differential -ours writes it). A name that no case
// needs fails.
//
// # Scripts
//
// Lines that begin with white space continue the line before; # begins a comment line.
//
//	first                        runs before all others, alone, on a broker that nobody has used
//	def NAME TEXT                %NAME% stands for the text in later lines
//	topic NAME [partitions=N] [key=value ...]
//	                             creates a topic and waits until it can be used; $id.NAME is its id
//	case NAME [vA-B]             begins a case, once for each version; $v is the version
//	[CONN:] Api vN|v* [MOD ...] {Field:value ...}
//	                             a request, and the wait for its answer
//	recv CONN                    waits for the answer to a request that was sent with the modifier "send"
//	quiet CONN                   shows that no answer comes within 150 ms
//	let NAME = Path.0.To.Field   keeps a value of the last answer as $NAME, for all later cases
//	raw [CONN:] HEX              bytes as they are
//	close CONN                   ends a connection
//
// Modifiers: send (do not wait), noanswer (none is due), await=TEXT (ask again until the answer contains it, five seconds at
// most), key=N and as=N (another key and version in the header), client=null, client= (empty), cut=N (leave the last N bytes
// out), append=HEX.
//
// Fields have kmsg's names; those that are not given have kmsg's defaults. Values: 1, true, text, "text", null, 0xHEX, [a b],
// {…}; x*300 (300 times); T+5 is a time (five milliseconds after a point shortly before the run); E+1 is a leader
// epoch (one after that of a new topic); $name; zero (a topic id); batch{…} and
// kmsg types such as ConsumerMemberMetadata{…} where bytes are wanted.
//
// # Transcripts
//
// Only fields that exist in the version are printed. Topic ids, member ids, producer ids, session ids, the cluster id, the
// broker's port, log directories, disk sizes and the present time become names in the order in which they appear, and leader
// epochs are counted from that of a new topic, E (0 in Kafka, 1 here); throttle times above 0 are some; texts of errors and of
// documentation are only null, empty or present. A request with a max wait of 300 ms or more tells whether it was over. The
// members of a classic group and the partitions of a Produce answer, which Kafka lists in the order of hashes of random ids,
// are sorted. Nothing else is changed. The last line of a case says which connections still answer.
package differential
