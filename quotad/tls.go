package quotad

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
)

// HTTPClient makes a client for the admin plane, which knows the servers by the authority and shows the certificate.
func (f TLSFiles) HTTPClient() (*http.Client, error) {
	mutual, err := f.mutual()
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: mutual, ForceAttemptHTTP2: true}}, nil
}

// mutual makes a configuration for both directions: every peer shows a certificate of the same authority.
func (f TLSFiles) mutual() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("tls.cert, tls.key: %w", err)
	}
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("tls.ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("tls.ca: no certificate in the file")
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: pool, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, Certificates: []tls.Certificate{cert},
	}, nil
}

// server is a configuration for a listener: each connection uses the certificates of its moment.
func (c *certificates) server(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config := c.config().Clone()
			config.NextProtos = protocols
			return config, nil
		},
	}
}
