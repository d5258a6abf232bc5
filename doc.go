// Package sluice is an LLM gateway that lives next to the app. The programs are in sidecar/cmd/sidecar,
// quotad/cmd/quotad and bench/cmd/bench; README.md and ARCHITECTURE.md say the rest.
package sluice
