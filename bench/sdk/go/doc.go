// Package sdk holds no code: its tests drive a running sidecar with unmodified Go SDKs, as an app would.
//
// SLUICE_URL is the sidecar's base URL (default http://127.0.0.1:4000/v1) and SLUICE_KEY the secret of an app of the demo
// organisation, which is the file SLUICE_ORG; tests add teams and keys of their own to it through quotad's admin API at
// SLUICE_ADMIN (default http://127.0.0.1:7072). SLUICE_WITNESS is where the fake provider says what it truly served
// (default http://127.0.0.1:9900/witness). SLUICE_COVERED is a file that takes a line for each feature of an SDK that a
// passed test proves (default: none). bench/sdk/run sets them all. The module is its own, so that the SDKs are no
// dependencies of the gateway.
package sdk
