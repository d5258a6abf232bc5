package estimate

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"io"
	"strings"
)

// What a document is taken for:
//
//   - A PDF: pageTokens for each of its pages, which are counted. Anthropic states 1,500 to 3,000 tokens a page, its text
//     and its picture; OpenAI reads both too; Gemini counts 258 to 560 a page.
//   - A text: its bytes, as other text.
//   - Anything else, and a PDF that hides its pages: a page for each begun pageBytes.
//   - What the provider fetches itself: UnseenTokens.
const (
	pageTokens = 3_000
	pageBytes  = 48 << 10
	// pagesMax is above what any provider takes: 100 to 600 pages at Anthropic, 1,000 at Gemini.
	pagesMax = 1_000
	// inflateMax bounds what of one document is inflated, in bytes.
	inflateMax = 8 << 20
	scanBytes  = 32 << 10
	// UnseenTokens is what a document is taken for that cannot be seen here.
	UnseenTokens = 20_000
)

// Document says what a document in base64 is taken for: tokens, or bytes of text. media is its type, "" for unknown.
func Document(media, data string) (tokens, text int64) {
	size := int64(base64.StdEncoding.DecodedLen(len(data)))
	if strings.HasPrefix(media, "text/") || media == "application/json" {
		return 0, size
	}
	pages := int64(0)
	if media == "application/pdf" || media == "" {
		pages = int64(pagesOf(data))
	}
	if pages == 0 {
		pages = size/pageBytes + 1
	}
	return min(pages, pagesMax) * pageTokens, 0
}

// pagesOf counts the pages of a PDF, 0 when it is none or does not tell.
func pagesOf(data string) int {
	s := pdf{left: inflateMax}
	s.scan(bufio.NewReaderSize(base64.NewDecoder(base64.StdEncoding, strings.NewReader(data)), scanBytes), true)
	if s.pages > 0 {
		return s.pages
	}
	return min(s.count, pagesMax)
}

// pdf looks for pages: objects of that type, which newer files keep in compressed streams of objects, and the number that
// the tree of pages states.
type pdf struct {
	pages, count int
	left         int64 // that may be inflated
}

var (
	typeKey, pageName, pagesName = []byte("Type"), []byte("/Page"), []byte("s")
	countKey, packedName         = []byte("Count"), []byte("ObjStm")
)

// scan reads to the end, or to what cannot be read. Names are told by the slash before them.
func (s *pdf) scan(r *bufio.Reader, outer bool) {
	for s.pages < pagesMax {
		if _, err := r.ReadSlice('/'); err == bufio.ErrBufferFull { //nolint:errorlint // for each piece, and it comes bare
			continue
		} else if err != nil {
			return
		}
		next, _ := r.Peek(24) // less at the end
		switch {
		case bytes.HasPrefix(next, typeKey):
			name, ok := bytes.CutPrefix(bytes.TrimLeft(next[len(typeKey):], " \r\n\t"), pageName)
			if ok && len(name) > 0 && !bytes.HasPrefix(name, pagesName) {
				s.pages++
			}
		case bytes.HasPrefix(next, countKey):
			n := 0
			for _, c := range bytes.TrimLeft(next[len(countKey):], " \r\n\t") {
				if c < '0' || c > '9' || n > pagesMax {
					break
				}
				n = n*10 + int(c-'0')
			}
			s.count = max(s.count, n)
		case outer && bytes.HasPrefix(next, packedName):
			s.unpack(r)
		}
	}
}

// unpack reads the stream of objects whose dictionary is in hand. What is no such stream after all is passed over.
func (s *pdf) unpack(r *bufio.Reader) {
	for {
		line, err := r.ReadSlice('m')
		switch {
		case err == bufio.ErrBufferFull: //nolint:errorlint // as above
		case err != nil:
			return
		case bytes.HasSuffix(line, []byte("endstream")):
			return
		case bytes.HasSuffix(line, []byte("stream")):
			if end, _ := r.Peek(2); len(end) == 2 && end[0] == '\r' {
				_, _ = r.Discard(2)
			} else {
				_, _ = r.Discard(1)
			}
			z, err := zlib.NewReader(r) // takes no byte too many of a bufio.Reader
			if err != nil {
				return
			}
			limited := &io.LimitedReader{R: z, N: s.left}
			s.scan(bufio.NewReaderSize(limited, scanBytes), false)
			s.left = limited.N
			return
		}
	}
}
