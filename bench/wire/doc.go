// Package wire replays every raw provider answer of testdata over real sockets through real processes, and judges what
// the caller, the books and the provider's side saw. It imports nothing of the product: prices are computed here anew,
// with math/big.
//
// testdata/expected.json says, for each file, what a caller of OpenAI's chat dialect must finally see. The expectations
// for callers of the Messages and Responses dialects follow from it.
package wire
