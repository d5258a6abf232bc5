// Package sdk holds no code: its tests drive a running sidecar with unmodified Go SDKs, as an app would.
//
// SLUICE_URL is the sidecar's base URL (default http://127.0.0.1:4000/v1) and SLUICE_KEY the secret of an app of the demo
// organisation. SLUICE_WITNESS is where the fake provider says what it truly served (default
// http://127.0.0.1:9900/witness). The module is its own, so that the SDKs are no dependencies of the gateway.
package sdk
