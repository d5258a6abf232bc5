package eventstream

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	aws "github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/sluice-gateway/sluice/sidecar/internal/readertest"
)

// read plays a stream in pieces and returns its events as text.
func read(p []byte, size func() int) ([]string, error) {
	var chunks [][]byte
	for len(p) > 0 {
		n := min(max(size(), 1), len(p))
		chunks, p = append(chunks, p[:n]), p[n:]
	}
	return readertest.Play(&Reader{}, func(ev *Event) string { return fmt.Sprintf("%s %q", ev.Name, ev.Data) }, chunks...)
}

func whole(n int) func() int { return func() int { return n } }

// oracle reads a stream with the library of AWS.
func oracle(p []byte) (events []string, err error) {
	d, src := aws.NewDecoder(), bytes.NewReader(p)
	for src.Len() > 0 {
		m, err := d.Decode(src, nil)
		if err != nil {
			return events, err
		}
		text := func(name string) string {
			v, _ := m.Headers.Get(name).(aws.StringValue)
			return string(v)
		}
		name, data := text(":event-type"), m.Payload
		switch text(":message-type") {
		case "event":
		case "exception":
			name = "exception:" + text(":exception-type")
		case "error":
			name = "error:" + text(":error-code")
			data, _ = json.Marshal(map[string]string{"message": text(":error-message")})
		default:
			return events, errors.New("no message type")
		}
		events = append(events, fmt.Sprintf("%s %q", name, data))
	}
	return events, nil
}

// fixture is the body of a recorded answer.
func fixture(t testing.TB, file string) []byte {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return body
}

func fixtures(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.bin")
	if err != nil || len(files) == 0 {
		t.Fatal("no fixtures", err)
	}
	return files
}

// TestFixtures: every recorded stream, whole, byte by byte and in random splits, is what AWS's own library reads.
func TestFixtures(t *testing.T) {
	for _, file := range fixtures(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			body := fixture(t, file)
			want, wantErr := oracle(body)
			rnd := rand.New(rand.NewPCG(1, 2))
			for range 50 {
				for _, size := range []func() int{whole(len(body)), whole(1), func() int { return 1 + rnd.IntN(90) }} {
					got, err := read(body, size)
					if !slices.Equal(got, want) || (err == nil) != (wantErr == nil) {
						t.Fatalf("got %q, %v; want %q, %v", got, err, want, wantErr)
					}
				}
			}
		})
	}
}

// TestTruncated: a stream that ends inside a frame never ends well. AWS's library takes some of these for a clean end.
func TestTruncated(t *testing.T) {
	body := fixture(t, "testdata/converse-stream-text.bin")
	all, _ := read(body, whole(len(body)))
	for n := range body {
		got, err := read(body[:n], whole(7))
		if between := len(body[:n]) == 0 || frameEnds(body)[n]; (err == nil) != between || err != nil && !errors.Is(err, ErrTruncated) {
			t.Fatalf("cut at %d: %v", n, err)
		}
		if !slices.Equal(got, all[:len(got)]) {
			t.Fatalf("cut at %d: got %q", n, got)
		}
	}
}

func frameEnds(body []byte) map[int]bool {
	ends := map[int]bool{}
	for at := 0; at < len(body); {
		at += int(binary.BigEndian.Uint32(body[at:]))
		ends[at] = true
	}
	return ends
}

// TestOneWrongBit: whatever bit of a frame is turned, it is not delivered.
func TestOneWrongBit(t *testing.T) {
	frame := message(t, "event", ":event-type", "x", `{"a":1}`)
	for i := range len(frame) * 8 {
		bad := slices.Clone(frame)
		bad[i/8] ^= 1 << (i % 8)
		if got, err := read(bad, whole(5)); !errors.Is(err, ErrChecksum) || len(got) > 0 {
			t.Fatalf("bit %d: got %q, %v", i, got, err)
		}
	}
}

func message(t testing.TB, kind, header, value, payload string) []byte {
	t.Helper()
	m := aws.Message{Payload: []byte(payload)}
	m.Headers.Set(":message-type", aws.StringValue(kind))
	m.Headers.Set(header, aws.StringValue(value))
	var b bytes.Buffer
	if err := aws.NewEncoder().Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sealed makes a frame with right checksums out of its lengths and what is in it.
func sealed(n, headers uint32, rest string) []byte {
	b := binary.BigEndian.AppendUint32(nil, n)
	b = binary.BigEndian.AppendUint32(b, headers)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	b = append(b, rest...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func TestMalformed(t *testing.T) {
	frame := func(headers string) []byte {
		return sealed(uint32(frameLeast+len(headers)), uint32(len(headers)), headers)
	}
	const event = "\x0d:message-type\x07\x00\x05event"
	for name, c := range map[string]struct {
		p    []byte
		want error
	}{
		"shorter than the least":        {sealed(15, 0, ""), ErrFrame},
		"headers beyond the frame":      {sealed(16, 1, ""), ErrFrame},
		"a frame above the cap":         {sealed(FrameBytesMax+1, 0, "x"), ErrTooLarge},
		"headers above the cap":         {sealed(FrameBytesMax, headerBytesMax+1, "x"), ErrTooLarge},
		"the largest frame, not there":  {sealed(FrameBytesMax, headerBytesMax, "x"), ErrTruncated},
		"no message type":               {frame(""), ErrFrame},
		"an unknown message type":       {frame("\x0d:message-type\x07\x00\x05evens"), ErrFrame},
		"a message type that is a flag": {frame("\x0d:message-type\x00"), ErrFrame},
		"a name that is cut":            {frame(event + "\x05abc"), ErrFrame},
		"a name without a kind":         {frame(event + "\x03abc"), ErrFrame},
		"an unknown kind":               {frame(event + "\x01a\x0a"), ErrFrame},
		"a value that is cut":           {frame(event + "\x01a\x07\x00\x05four"), ErrFrame},
		"a length that is cut":          {frame(event + "\x01a\x06\x00"), ErrFrame},
		"a type that is not UTF-8":      {frame(event + "\x0b:event-type\x07\x00\x01\xff"), ErrFrame},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 4096} {
				if got, err := read(c.p, whole(size)); !errors.Is(err, c.want) || len(got) > 0 {
					t.Errorf("got %q, %v", got, err)
				}
			}
		})
	}
}

// TestEveryKindOfHeader: headers of all ten kinds are passed over, and an error has its message from one.
func TestEveryKindOfHeader(t *testing.T) {
	m := aws.Message{Headers: aws.Headers{
		{Name: "t", Value: aws.BoolValue(true)}, {Name: "f", Value: aws.BoolValue(false)},
		{Name: "1", Value: aws.Int8Value(1)}, {Name: "2", Value: aws.Int16Value(2)}, {Name: "4", Value: aws.Int32Value(3)},
		{Name: "8", Value: aws.Int64Value(4)}, {Name: "b", Value: aws.BytesValue("bytes")}, {Name: "s", Value: aws.StringValue("s")},
		{Name: "d", Value: aws.TimestampValue{}}, {Name: "u", Value: aws.UUIDValue{}},
		{Name: ":message-type", Value: aws.StringValue("error")}, {Name: ":error-code", Value: aws.StringValue("Bad")},
		{Name: ":error-message", Value: aws.StringValue("say \"no\"\n")},
	}}
	var b bytes.Buffer
	if err := aws.NewEncoder().Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	got, err := read(b.Bytes(), whole(3))
	if want := `error:Bad "{\"message\":\"say \\\"no\\\"\\n\"}"`; err != nil || len(got) != 1 || got[0] != want {
		t.Fatalf("got %q, %v", got, err)
	}
}

// TestBigFrames: a large frame passes, and its buffer is not kept.
func TestBigFrames(t *testing.T) {
	big := message(t, "event", ":event-type", "big", string(bytes.Repeat([]byte("x"), 1<<20)))
	var r Reader
	count := 0
	for chunk := range slices.Chunk(append(big, message(t, "event", ":event-type", "small", "{}")...), 1000) {
		r.Feed(chunk)
		count += readertest.Drain(t, &r)
	}
	if count != 2 || cap(r.part) > keepBytesMax {
		t.Fatalf("%d events, a buffer of %d bytes kept", count, cap(r.part))
	}
}

// FuzzReader: whatever comes, however it is cut, the reader agrees with itself and with AWS's library. Only where a
// stream ends too early is it stricter.
func FuzzReader(f *testing.F) {
	for _, file := range fixtures(f) {
		f.Add(fixture(f, file), 7)
	}
	f.Add(sealed(FrameBytesMax, 0, "x"), 1)
	f.Fuzz(func(t *testing.T, p []byte, size int) {
		for at := 0; at+frameLeast <= len(p); { // sums are hard to guess: put them right
			n := int(binary.BigEndian.Uint32(p[at:]))
			if n < frameLeast || n > len(p)-at {
				break
			}
			binary.BigEndian.PutUint32(p[at+8:], crc32.ChecksumIEEE(p[at:at+8]))
			binary.BigEndian.PutUint32(p[at+n-4:], crc32.ChecksumIEEE(p[at:at+n-4]))
			at += n
		}
		got, err := read(p, whole(len(p)))
		split, splitErr := read(p, whole(1+size&0xff))
		if !slices.Equal(got, split) || !errors.Is(splitErr, err) {
			t.Fatalf("whole %q, %v; split %q, %v", got, err, split, splitErr)
		}
		want, wantErr := oracle(p)
		if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) || err == nil && wantErr != nil {
			t.Fatalf("got %q, %v; want %q, %v", got, err, want, wantErr)
		}
	})
}

// TestHeadersAreRemembered: what a frame says is in its own headers, also where it follows one with others, or none.
func TestHeadersAreRemembered(t *testing.T) {
	var p []byte
	for i, x := range [][3]string{
		{"event", ":event-type", "a"}, {"event", ":event-type", "a"}, {"exception", ":exception-type", "a"}, {"event", ":event-type", "a"},
		{"event", ":event-type", "b"}, {"event", ":event-type", "a"}, {"event", ":event-type", strings.Repeat("c", headsBytesMax)},
		{"event", ":event-type", "a"}, {"event", ":event-type", strings.Repeat("c", headsBytesMax)},
	} {
		p = append(p, message(t, x[0], x[1], x[2], strconv.Itoa(i))...)
	}
	got, err := read(p, whole(50))
	want, wantErr := oracle(p)
	if !slices.Equal(got, want) || len(got) != 9 || err != nil || wantErr != nil {
		t.Errorf("got %q, %v; want %q, %v", got, err, want, wantErr)
	}
}
