package estimate

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// plainPDF is a file of some pages as older programs write it.
func plainPDF(pages int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%%PDF-1.4\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n2 0 obj\n<< /Type /Pages /Count %d >>\nendobj\n", pages)
	for i := range pages {
		fmt.Fprintf(&b, "%d 0 obj\n<< /Type /Page /Parent 2 0 R /Contents 9 0 R >>\nendobj\n9 0 obj\n<< /Length 4 >>\nstream\n/x m\nendstream\n", i+3)
	}
	return b.String() + "trailer\n%%EOF"
}

// packedPDF has its pages in a compressed stream of objects, as newer programs write it.
func packedPDF(pages int, eol string) string {
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	for range pages {
		_, _ = z.Write([]byte("<</Parent 2 0 R/Type/Page/Rotate 0>>"))
	}
	_, _ = z.Write([]byte("<</Type/Pages/Count 1>>"))
	_ = z.Close()
	return "%PDF-1.7\n4 0 obj\n<</Filter/FlateDecode/First 5/N 3/Type/ObjStm/Length 9>>\nstream" + eol + packed.String() +
		"\nendstream\nendobj\n" + strings.Repeat("\xff/Ty\x00", 30_000) + "\n%%EOF"
}

func TestDocument(t *testing.T) {
	hidden := "%PDF-1.7\n" + strings.Repeat("\x00", 100<<10)
	var bomb bytes.Buffer
	z := zlib.NewWriter(&bomb)
	_, _ = z.Write(bytes.Repeat([]byte{' '}, inflateMax+1))
	_, _ = z.Write([]byte("/Type/Page >>"))
	_ = z.Close()
	for name, c := range map[string]struct {
		media, file  string
		tokens, text int64
	}{
		"a page":                {"application/pdf", plainPDF(1), pageTokens, 0},
		"small pages":           {"application/pdf", plainPDF(40), 40 * pageTokens, 0},
		"of unknown type":       {"", plainPDF(2), 2 * pageTokens, 0},
		"packed":                {"application/pdf", packedPDF(120, "\n"), 120 * pageTokens, 0},
		"packed, other ends":    {"application/pdf", packedPDF(3, "\r\n"), 3 * pageTokens, 0},
		"the tree alone":        {"application/pdf", "%PDF\n<< /Type /Pages /Count 7 /Kids [] >>", 7 * pageTokens, 0},
		"no tree, no pages":     {"application/pdf", hidden, 3 * pageTokens, 0},
		"no end to them":        {"application/pdf", plainPDF(pagesMax + 5), pagesMax * pageTokens, 0},
		"said to have no end":   {"application/pdf", "%PDF\n<< /Type /Pages /Count 99999999999999999999999 >>", pagesMax * pageTokens, 0},
		"too much in one":       {"application/pdf", "%PDF\n<</Type/ObjStm>>stream\n" + bomb.String(), pageTokens, 0},
		"no stream after all":   {"application/pdf", "%PDF\n<</Type/ObjStm>>stream\nnonsense\n/Type /Page\n", pageTokens, 0},
		"cut in its dictionary": {"application/pdf", "%PDF\n<</Type/ObjStm", pageTokens, 0},
		"a text":                {"text/csv", strings.Repeat("a,b\n", 300), 0, 1200},
		"an office's":           {"application/vnd.ms-excel", strings.Repeat("x", 2*pageBytes-3), 2 * pageTokens, 0},
		"nothing":               {"application/pdf", "", pageTokens, 0},
	} {
		tokens, text := Document(c.media, base64.StdEncoding.EncodeToString([]byte(c.file)))
		if tokens != c.tokens || text != c.text {
			t.Errorf("%s: %d tokens, %d bytes of text, want %d, %d", name, tokens, text, c.tokens, c.text)
		}
	}
	if tokens, _ := Document("application/pdf", "*no base64*"); tokens != pageTokens {
		t.Errorf("no base64: %d", tokens)
	}
}

func FuzzDocument(f *testing.F) {
	f.Add(plainPDF(2))
	f.Add(packedPDF(2, "\n"))
	f.Fuzz(func(t *testing.T, file string) {
		tokens, _ := Document("application/pdf", base64.StdEncoding.EncodeToString([]byte(file)))
		if tokens < pageTokens || tokens > pagesMax*pageTokens {
			t.Errorf("%d tokens", tokens)
		}
	})
}
