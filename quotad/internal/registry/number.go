package registry

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Nano is a decimal in billionths, exact: nano-dollars where it is money.
type Nano int64

// Permille is a share in thousandths, exact.
type Permille int64

// Millis is a duration in milliseconds.
type Millis int64

// Time is a moment, Unix milliseconds; 0 stands for none.
type Time int64

const (
	nanoDigits     = 9
	permilleDigits = 3
	numberBytesMax = 64
	exponentMax    = 40 // beyond it every int64 is out of range, whatever the digits
)

var (
	errNotDecimal  = errors.New("is not a decimal number, like 2.50")
	errNegative    = errors.New("must not be negative")
	errTooLarge    = errors.New("is too large")
	errNotWhole    = errors.New("must be a whole number")
	errNotDuration = errors.New("is not a duration, like 500ms, 2s or 10m")
	errNotTime     = errors.New("is not a date, like 2027-06-30, or an RFC 3339 time, like 2027-06-30T12:00:00Z")
)

// parseDecimal reads text as a decimal and returns it times 10^digits. It never goes through a float: what cannot be
// kept exactly is an error. Exponents are read because JSON writers use them for large round numbers.
func parseDecimal(text string, digits int) (int64, error) {
	if len(text) > numberBytesMax {
		return 0, errNotDecimal
	}
	if rest, ok := strings.CutPrefix(text, "-"); ok {
		if _, err := parseDecimal(rest, digits); errors.Is(err, errNotDecimal) || errors.Is(err, errNegative) {
			return 0, errNotDecimal
		}
		return 0, errNegative
	}
	mantissa, exponent, err := cutExponent(text)
	if err != nil {
		return 0, err
	}
	whole, fraction, dotted := strings.Cut(mantissa, ".")
	if !isDigits(whole) || dotted && !isDigits(fraction) || len(whole) > 1 && whole[0] == '0' {
		return 0, errNotDecimal
	}
	all := strings.TrimLeft(whole+fraction, "0")
	if all == "" {
		return 0, nil
	}
	shift := digits - len(fraction) + exponent
	for ; shift < 0; shift++ {
		rest, ok := strings.CutSuffix(all, "0")
		if !ok {
			return 0, tooFine(digits)
		}
		all = rest
	}
	if len(all)+shift > 19 {
		return 0, errTooLarge
	}
	v, err := strconv.ParseInt(all+strings.Repeat("0", shift), 10, 64)
	if err != nil {
		return 0, errTooLarge
	}
	return v, nil
}

func tooFine(digits int) error {
	if digits == 0 {
		return errNotWhole
	}
	return fmt.Errorf("has more than %d decimals", digits)
}

func cutExponent(text string) (mantissa string, exponent int, err error) {
	i := strings.IndexAny(text, "eE")
	if i < 0 {
		return text, 0, nil
	}
	e := text[i+1:]
	sign := 1
	if e != "" && (e[0] == '+' || e[0] == '-') {
		if e[0] == '-' {
			sign = -1
		}
		e = e[1:]
	}
	if !isDigits(e) {
		return "", 0, errNotDecimal
	}
	n, err := strconv.Atoi(e)
	if err != nil || n > exponentMax {
		return "", 0, errTooLarge
	}
	return text[:i], sign * n, nil
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// formatDecimal is the shortest text that parseDecimal reads back. v is not negative.
func formatDecimal(v int64, digits int) string {
	s := strconv.FormatInt(v, 10)
	if len(s) <= digits {
		s = strings.Repeat("0", digits-len(s)+1) + s
	}
	whole, fraction := s[:len(s)-digits], strings.TrimRight(s[len(s)-digits:], "0")
	if fraction == "" {
		return whole
	}
	return whole + "." + fraction
}

func parseMillis(text string) (int64, error) {
	if text == "" || strings.ContainsAny(text[:1], "+-.") {
		return 0, errNotDuration
	}
	d, err := time.ParseDuration(text)
	if err != nil || text == "0" {
		return 0, errNotDuration
	}
	if d%time.Millisecond != 0 {
		return 0, errors.New("must be whole milliseconds")
	}
	return d.Milliseconds(), nil
}

// formatMillis writes a duration in the largest unit that is exact.
func formatMillis(ms int64) string {
	switch {
	case ms == 0:
		return "0s"
	case ms%3_600_000 == 0:
		return strconv.FormatInt(ms/3_600_000, 10) + "h"
	case ms%60_000 == 0:
		return strconv.FormatInt(ms/60_000, 10) + "m"
	case ms%1_000 == 0:
		return strconv.FormatInt(ms/1_000, 10) + "s"
	}
	return strconv.FormatInt(ms, 10) + "ms"
}

// parseTime reads a date, which stands for its first moment in UTC, or an RFC 3339 time.
func parseTime(text string) (int64, error) {
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		t, err = time.Parse(time.RFC3339, text)
	}
	if err != nil {
		return 0, errNotTime
	}
	// A year of few or many digits is a slip of the pen, and would not survive the way back to text.
	if y := t.UTC().Year(); y < 2000 || y >= 2200 {
		return 0, errors.New("must be between the years 2000 and 2199")
	}
	return t.UnixMilli(), nil
}

func formatTime(ms int64) string {
	return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano)
}

// USD writes nano-dollars for people, exactly, with at least two decimals: $12.50.
func (n Nano) USD() string { return n.text("$") }

// In writes an amount of a currency for people, exactly, with at least two decimals: INR 12.50. Without a currency it is
// the number alone.
func (n Nano) In(currency string) string { return n.text(strings.TrimLeft(currency+" ", " ")) }

func (n Nano) text(unit string) string {
	sign, u := "", uint64(n)
	if n < 0 {
		sign, u = "-", -u
	}
	frac := strings.TrimRight(fmt.Sprintf("%09d", u%1e9), "0")
	for len(frac) < 2 {
		frac += "0"
	}
	return sign + unit + strconv.FormatUint(u/1e9, 10) + "." + frac
}

// MarshalJSON writes the decimal as a JSON number.
func (n Nano) MarshalJSON() ([]byte, error) { return []byte(formatDecimal(int64(n), nanoDigits)), nil }

// UnmarshalJSON reads what MarshalJSON wrote.
func (n *Nano) UnmarshalJSON(b []byte) error {
	v, err := parseDecimal(string(b), nanoDigits)
	*n = Nano(v)
	return wrapNumber(b, err)
}

// MarshalJSON writes the share as a JSON number, for example 0.5.
func (p Permille) MarshalJSON() ([]byte, error) {
	return []byte(formatDecimal(int64(p), permilleDigits)), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *Permille) UnmarshalJSON(b []byte) error {
	v, err := parseDecimal(string(b), permilleDigits)
	*p = Permille(v)
	return wrapNumber(b, err)
}

// MarshalJSON writes the duration as a JSON string, for example "2s".
func (m Millis) MarshalJSON() ([]byte, error) { return []byte(`"` + formatMillis(int64(m)) + `"`), nil }

// UnmarshalJSON reads what MarshalJSON wrote.
func (m *Millis) UnmarshalJSON(b []byte) error {
	v, err := parseMillis(unquote(b))
	*m = Millis(v)
	return wrapNumber(b, err)
}

// MarshalJSON writes the time as a JSON string in UTC.
func (t Time) MarshalJSON() ([]byte, error) { return []byte(`"` + formatTime(int64(t)) + `"`), nil }

// UnmarshalJSON reads what MarshalJSON wrote.
func (t *Time) UnmarshalJSON(b []byte) error {
	v, err := parseTime(unquote(b))
	*t = Time(v)
	return wrapNumber(b, err)
}

func unquote(b []byte) string {
	if len(b) < 2 || b[0] != '"' || b[len(b)-1] != '"' {
		return ""
	}
	return string(b[1 : len(b)-1])
}

func wrapNumber(b []byte, err error) error {
	if err != nil {
		return fmt.Errorf("%s %w", clip(string(b)), err)
	}
	return nil
}

// clip shortens and quotes a wrong value for a fault.
func clip(s string) string {
	if len(s) > quoteMax {
		return strconv.Quote(strings.ToValidUTF8(s[:quoteMax], "")) + "…"
	}
	return strconv.Quote(s)
}
