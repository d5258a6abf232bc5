package quotad

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// reloadEvery is how often the files are looked at. A change counts once they looked the same twice, so that files that
// are being written are not taken for broken ones.
const reloadEvery = 2 * time.Second

// certificates are the files of mutual TLS. They are read again when they change: connections made from then on use the
// new ones, those that there are go on. New files that do not work are not used.
type certificates struct {
	files TLSFiles
	fits  func(*x509.Certificate) error // says what is wrong with a certificate that works; nil: nothing ever is
	log   *zap.Logger

	now   atomic.Pointer[tls.Config] // never changed, only replaced
	fault atomic.Pointer[string]     // why the newest files are not in use; nil when they are

	// These are of whoever reads the files: open, then run.
	looked, tried []byte // what the files held at the last look, and when they were last read
}

func openCertificates(files TLSFiles, fits func(*x509.Certificate) error, log *zap.Logger) (*certificates, error) {
	c := &certificates{files: files, fits: fits, log: log}
	c.looked = c.look()
	c.tried = c.looked
	config, err := c.read()
	if err != nil {
		return nil, err
	}
	c.now.Store(config)
	return c, nil
}

// read reads the files. Those of another process, which get mixed up, are refused.
func (c *certificates) read() (*tls.Config, error) {
	config, err := c.files.mutual()
	if err != nil || c.fits == nil {
		return config, err
	}
	leaf, err := x509.ParseCertificate(config.Certificates[0].Certificate[0])
	if err == nil {
		err = c.fits(leaf)
	}
	if err != nil {
		return nil, fmt.Errorf("tls.cert: %w", err)
	}
	return config, nil
}

// config is what connections of this moment use, in either direction.
func (c *certificates) config() *tls.Config { return c.now.Load() }

// run reads the files when they change, or at once when it is told to, until ctx ends.
func (c *certificates) run(ctx context.Context, now <-chan os.Signal) error {
	t := time.NewTicker(reloadEvery)
	defer t.Stop()
	for {
		told := false
		select {
		case <-ctx.Done():
			return nil
		case <-now:
			told = true
		case <-t.C:
		}
		seen := c.look()
		settled := bytes.Equal(seen, c.looked)
		c.looked = seen
		if told || settled && !bytes.Equal(seen, c.tried) {
			c.tried = seen
			c.reload()
		}
	}
}

func (c *certificates) reload() {
	config, err := c.read()
	if err != nil {
		text := "new certificate files are not used: " + err.Error()
		c.fault.Store(&text)
		c.log.Error("new certificate files are not used, the old ones stay", zap.Error(err))
		return
	}
	c.fault.Store(nil)
	c.now.Store(config)
	c.log.Info("certificates were read again", zap.Time("ends", c.ends()))
}

// look sums up what the files hold. One that cannot be read holds its error.
func (c *certificates) look() []byte {
	h := sha256.New()
	for _, name := range [...]string{c.files.CA, c.files.Cert, c.files.Key} {
		b, err := os.ReadFile(name)
		if err != nil {
			b = []byte(err.Error())
		}
		sum := sha256.Sum256(b)
		h.Write(sum[:])
	}
	return h.Sum(nil)
}

// problem says why the newest files are not in use, or that those in use are no longer good; empty when all is well.
func (c *certificates) problem(now time.Time) string {
	if c == nil {
		return ""
	}
	if f := c.fault.Load(); f != nil {
		return *f
	}
	if ends := c.ends(); now.After(ends) {
		return "the certificate ended at " + ends.UTC().Format(time.RFC3339)
	}
	return ""
}

// ends is when the certificate in use ends; the zero time without one.
func (c *certificates) ends() time.Time {
	if c == nil {
		return time.Time{}
	}
	leaf, err := x509.ParseCertificate(c.config().Certificates[0].Certificate[0])
	if err != nil {
		return time.Time{} // it was parsed when it was loaded
	}
	return leaf.NotAfter
}
