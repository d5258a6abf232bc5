package replica

import (
	"crypto/x509"
	"fmt"
	"net"
	"strconv"
)

// nodeIDMax bounds the name of a node, in bytes.
const nodeIDMax = 128

// CheckNodeID says what is wrong with the name of a node. It stands in certificates, file names and tables.
func CheckNodeID(id string) error {
	ok := id != "" && len(id) <= nodeIDMax
	for _, r := range id {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
		default:
			ok = false
		}
	}
	if !ok {
		return fmt.Errorf("%.64q is not a name (1 to %d of a-z A-Z 0-9 . _ -)", id, nodeIDMax)
	}
	return nil
}

// CheckAddress says what is wrong with an address at which others are to find something.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" {
		return fmt.Errorf("%.64q is not host:port", address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%.64q: the port is not a number from 1 to 65535", address)
	}
	return nil
}

// IsOfNode reports whether a certificate is a node's: one of its URI names is spiffe://<trust domain>/quotad/<id>. Any
// certificate of the same authority would do otherwise, and sidecars have such.
func IsOfNode(cert *x509.Certificate, id string) bool {
	for _, u := range cert.URIs {
		if u.Scheme == "spiffe" && u.Host != "" && u.Path == "/quotad/"+id {
			return true
		}
	}
	return false
}
