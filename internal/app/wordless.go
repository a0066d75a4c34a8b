package app

import (
	"io"
	"log/slog"
)

// Wordless gives a writer for the standard logger, to which libraries write what nobody asked for: net/http quotes there
// the bytes of an answer that came on an idle connection. That a line was written is logged, the line is not.
func Wordless(log *slog.Logger) io.Writer { return wordless{log} }

type wordless struct{ log *slog.Logger }

// Write implements io.Writer.
func (w wordless) Write(line []byte) (int, error) {
	w.log.Warn("a library wrote to the standard logger", "bytes", len(line))
	return len(line), nil
}
