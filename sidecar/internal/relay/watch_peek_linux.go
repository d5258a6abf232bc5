package relay

import "golang.org/x/sys/unix"

const pollHangUp = unix.POLLRDHUP
