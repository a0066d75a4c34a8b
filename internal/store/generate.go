package store

//go:generate ./gen.sh
