package wire

// Conn is one client connection; see ConnInfo for what handlers may use.
type Conn struct{ ConnInfo }
