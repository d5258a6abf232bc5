package cost

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Dialect names the row of Table for an answer: by who gave it and, as expected.json calls it, by which API.
func Dialect(provider, api string) string {
	switch {
	case api == "messages", strings.HasPrefix(api, "invoke"):
		return "messages"
	case strings.HasPrefix(api, "converse"):
		return "converse"
	case api == "responses":
		return "responses"
	case strings.Contains(strings.ToLower(api), "generatecontent"):
		return "gemini"
	case strings.Contains(api, "/api/chat"):
		return "ollama"
	case provider == "gemini":
		return "gemini-openai"
	case provider == "xai":
		return "xai"
	}
	return "chat"
}

// Read reads a whole raw HTTP answer, JSON or stream of any framing, cut short or not. ok is false when it states no usage.
func Read(dialect string, raw []byte) (u Usage, ok bool, err error) {
	in, known := Table[dialect]
	if !known {
		return u, false, fmt.Errorf("nobody says who includes what in %q", dialect)
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), nil)
	if err != nil {
		return u, false, err
	}
	body, _ := io.ReadAll(resp.Body) // what there is of it
	_ = resp.Body.Close()
	usage, tier := map[string]any{}, resp.Header.Get("X-Gemini-Service-Tier")
	for _, doc := range documents(resp.Header.Get("Content-Type"), body) {
		for _, at := range []string{"usage", "message.usage", "response.usage", "x_groq.usage", "usageMetadata", "metadata.usage"} {
			if stated, is := member(doc, at).(map[string]any); is && len(stated) > 0 {
				merge(usage, stated)
				ok = true
			}
		}
		if dialect == "ollama" && doc["eval_count"] != nil {
			usage, ok = doc, true
		}
		for _, at := range []string{
			"service_tier", "response.service_tier", "usage.service_tier", "message.usage.service_tier", "serviceTier.type", "usageMetadata.trafficType",
		} {
			if s, is := member(doc, at).(string); is {
				tier = cmp.Or(s, tier)
			}
		}
	}
	u = in.Of(usage)
	u.Tier = tier
	u.Speed, _ = usage["speed"].(string)
	u.Geo, _ = usage["inference_geo"].(string)
	return u, ok, nil
}

// merge takes what is stated later, member by member; null states nothing.
func merge(to, from map[string]any) {
	for k, v := range from {
		inner, isMap := v.(map[string]any)
		before, wasMap := to[k].(map[string]any)
		switch {
		case v == nil:
		case isMap && wasMap:
			merge(before, inner)
		default:
			to[k] = v
		}
	}
}

func member(doc map[string]any, path string) any {
	outer, inner, nested := strings.Cut(path, ".")
	if !nested {
		return doc[outer]
	}
	m, _ := doc[outer].(map[string]any)
	return member(m, inner)
}

// documents are the JSON objects of a body.
func documents(contentType string, body []byte) (docs []map[string]any) {
	if strings.Contains(contentType, "eventstream") {
		for _, payload := range frames(body) {
			docs = append(docs, objects(payload)...)
		}
		return docs
	}
	text := bytes.TrimLeft(bytes.TrimPrefix(body, []byte("\ufeff")), " \t\r\n")
	if len(text) > 0 && (text[0] == '{' || text[0] == '[') {
		return objects(text)
	}
	var data []string
	for _, line := range strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(text)), "\n") {
		if rest, ok := strings.CutPrefix(line, "data:"); ok {
			data = append(data, rest)
		} else if line == "" {
			docs, data = append(docs, objects([]byte(strings.Join(data, "\n")))...), nil
		}
	}
	return append(docs, objects([]byte(strings.Join(data, "\n")))...)
}

// objects reads JSON objects one after the other, and those in lists, as far as they are whole.
func objects(text []byte) (docs []map[string]any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	for {
		var v any
		if err := d.Decode(&v); err != nil {
			return docs
		}
		list, isList := v.([]any)
		if !isList {
			list = []any{v}
		}
		for _, e := range list {
			doc, ok := e.(map[string]any)
			if !ok {
				continue
			}
			docs = append(docs, doc)
			if b64, ok := doc["bytes"].(string); ok { // a model's own event, as Bedrock's invoke wraps it
				if inner, err := base64.StdEncoding.DecodeString(b64); err == nil {
					docs = append(docs, objects(inner)...)
				}
			}
		}
	}
}

// frames are the payloads of an AWS event stream, as far as they are whole.
func frames(body []byte) (payloads [][]byte) {
	for {
		payload, rest, err := frame(body)
		if err != nil {
			return payloads
		}
		payloads, body = append(payloads, payload), rest
	}
}

var errShort = errors.New("a frame is not whole")

// frame: total length, length of the headers, checksum of both, headers, payload, checksum.
func frame(b []byte) (payload, rest []byte, err error) {
	const prelude, sum = 12, 4
	if len(b) < prelude+sum {
		return nil, nil, errShort
	}
	total, headers := uint64(binary.BigEndian.Uint32(b)), uint64(binary.BigEndian.Uint32(b[4:]))
	if total > uint64(len(b)) || prelude+headers+sum > total {
		return nil, nil, errShort
	}
	return b[prelude+headers : total-sum], b[total:], nil
}
