package registry

import "strings"

// Classes are the priority classes, highest first.
func Classes() []string { return []string{"interactive", "standard", "batch"} }

// defaultReserves are the classes' reserved shares of every pool; the rest floats.
func defaultReserves() map[string]Permille {
	return map[string]Permille{"interactive": 600, "standard": 250, "batch": 50}
}

// defaultReservesText is how they stand in an org.yaml.
func defaultReservesText() string {
	shares := make([]string, 0, len(Classes()))
	for _, class := range Classes() {
		shares = append(shares, class+": "+formatDecimal(int64(defaultReserves()[class]), permilleDigits))
	}
	return strings.Join(shares, ", ")
}
