package registry

import "slices"

// otherWords are keys of other products' files, and ours.
var otherWords = map[string]string{
	"location": "region", "endpoint": "base_url", "api_base": "base_url", "url": "base_url", "name": "id", "type": "provider",
	"itpm": "input_tpm", "otpm": "output_tpm",
}

// didYouMean names what was probably meant by a word that is none of names; it is empty when nothing is near.
func didYouMean(word string, names []string) string {
	meant := otherWords[word]
	if !slices.Contains(names, meant) {
		meant = nearest(word, names)
	}
	if meant == "" {
		return ""
	}
	return ": did you mean " + meant + "?"
}

// nearest is the first of the names that are the fewest slips from a word: a letter too many, one missing, another one, or
// two that changed places. More than one slip for each three letters is another word.
func nearest(word string, names []string) (found string) {
	if len(word) > idBytesMax {
		return "" // nobody misspells that; it would take long to compare
	}
	best := len(word)/3 + 1
	for _, name := range names {
		if n := slips(word, name); n < best {
			found, best = name, n
		}
	}
	return found
}

// slips is the distance of two words by optimal string alignment.
func slips(a, b string) int {
	rows := make([][]int, len(a)+1) // of the first i bytes of a to the first j of b
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			other := 1
			if a[i-1] == b[j-1] {
				other = 0
			}
			n := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+other)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				n = min(n, rows[i-2][j-2]+1)
			}
			rows[i][j] = n
		}
	}
	return rows[len(a)][len(b)]
}
