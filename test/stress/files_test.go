package stress

import "strings"

// checkFiles has "pgbroker log verify", which shares no code with what wrote the files, look at the log directory: after
// kill -9 nothing may be worse than what a start repairs, and after a start and a clean stop nothing may be found.
func (s *storm) checkFiles() {
	s.broker.Kill()
	if found := s.broker.VerifyFiles(); strings.Contains(found, "ERROR ") {
		s.t.Errorf("log verify after kill -9:\n%s", found)
	}
	s.broker.MustStart()
	if err := s.broker.Stop(); err != nil {
		s.t.Fatal(err)
	}
	found := s.broker.VerifyFiles()
	if !strings.HasSuffix(found, ", 0 findings") {
		s.t.Errorf("log verify after a clean stop:\n%s", found)
	}
	s.t.Log(found)
}
