package store

import (
	"fmt"
	"io"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// HCLog returns a logger of the kind Raft wants that writes to log, under name. Raft's info lines are about normal
// life, so they arrive one level lower, except for those that tell of a fault.
func HCLog(log *zap.Logger, name string) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: name, Output: io.Discard, Level: hclog.Off})
	l.RegisterSink(zapSink{log})
	return l
}

type zapSink struct{ log *zap.Logger }

// Accept writes one line. Args are alternating keys and values.
func (s zapSink) Accept(name string, level hclog.Level, msg string, args ...any) {
	entry := s.log.Check(zapLevel(level), msg)
	if entry == nil {
		return
	}
	fields := make([]zap.Field, 1, 1+len(args)/2)
	fields[0] = zap.String("part", name)
	for i := 0; i+1 < len(args); i += 2 {
		// Values are raft's own types, whose JSON may hold more than their text: take the text.
		fields = append(fields, zap.String(fmt.Sprint(args[i]), fmt.Sprint(args[i+1])))
	}
	entry.Write(fields...)
}

func zapLevel(level hclog.Level) zapcore.Level {
	switch level {
	case hclog.Error:
		return zapcore.ErrorLevel
	case hclog.Warn:
		return zapcore.WarnLevel
	default:
		return zapcore.DebugLevel
	}
}
