// Package mail is the sink that tells people: a receipt by SMTP, the one-time code of a cancel.
//
// Owns templates and their fields, the SMTP conversation, and what it proved of a mail (docs/decisions/0033).
// Never sends a mail twice by itself, writes an address or a code anywhere, or repeats a server's words.
// Read next: sink.go, template.go, smtp.go; docs/mail.md.
package mail
