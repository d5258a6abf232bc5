package registry

import (
	"strings"
	"testing"
)

func TestParseDecimalIsExact(t *testing.T) {
	for _, tc := range []struct {
		text string
		want int64
		err  string
	}{
		{"5000", 5_000_000_000_000, ""},
		{"2.00", 2_000_000_000, ""},
		{"0.02", 20_000_000, ""},
		{"0.1", 100_000_000, ""},
		{"0", 0, ""},
		{"0.000000001", 1, ""},
		{"9223372036.854775807", 9223372036854775807, ""},
		{"9223372036.854775808", 0, "is too large"},
		{"1e3", 1_000_000_000_000, ""},
		{"1.5E-2", 15_000_000, ""},
		{"10e-10", 1, ""},
		{"1e-10", 0, "has more than 9 decimals"},
		{"1e10", 0, "is too large"},
		{"0e40", 0, ""},
		{"1e41", 0, "is too large"},
		{"0.0000000010", 1, ""},
		{"0.0000000001", 0, "has more than 9 decimals"},
		{"-1", 0, "must not be negative"},
		{"-0", 0, "must not be negative"},
		{"--1", 0, "is not a decimal number"},
		{"NaN", 0, "is not a decimal number"},
		{".inf", 0, "is not a decimal number"},
		{"1_000", 0, "is not a decimal number"},
		{"1,5", 0, "is not a decimal number"},
		{"0x10", 0, "is not a decimal number"},
		{"010", 0, "is not a decimal number"},
		{".5", 0, "is not a decimal number"},
		{"5.", 0, "is not a decimal number"},
		{"1e", 0, "is not a decimal number"},
		{"", 0, "is not a decimal number"},
		{" 1", 0, "is not a decimal number"},
		{strings.Repeat("9", 65), 0, "is not a decimal number"},
	} {
		t.Run(tc.text, func(t *testing.T) {
			got, err := parseDecimal(tc.text, nanoDigits)
			if tc.err == "" {
				if err != nil || got != tc.want {
					t.Errorf("got %d, %v, want %d", got, err, tc.want)
				}
				if back, err := parseDecimal(formatDecimal(got, nanoDigits), nanoDigits); err != nil || back != got {
					t.Errorf("back from text: %d, %v, want %d", back, err, got)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), tc.err) {
				t.Errorf("got %d, %v, want %s", got, err, tc.err)
			}
		})
	}
}

func TestTimesAndDurations(t *testing.T) {
	for text, want := range map[string]string{
		"2027-06-30":                    "2027-06-30T00:00:00Z",
		"2027-06-30T12:00:00+05:30":     "2027-06-30T06:30:00Z",
		"2027-06-30T12:00:00.250Z":      "2027-06-30T12:00:00.25Z",
		"1999-12-31":                    "must be between",
		"2027-02-30":                    "is not a date",
		"2027-06-30 12:00:00":           "is not a date",
		"2199-12-31T23:59:59.999-23:59": "must be between",
	} {
		ms, err := parseTime(text)
		got := formatTime(ms)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("time %s: got %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"2s": "2s", "10m": "10m", "90s": "90s", "1500ms": "1500ms", "1.5s": "1500ms", "60m": "1h", "0s": "0s",
		"1us": "must be whole", "-2s": "is not", "2": "is not", "0": "is not", "": "is not", "+1s": "is not", "1d": "is not",
	} {
		ms, err := parseMillis(text)
		got := formatMillis(ms)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("duration %s: got %s, want %s", text, got, want)
		}
	}
}
