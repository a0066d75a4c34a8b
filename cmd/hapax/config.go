package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"github.com/hapaxpay/hapax/internal/config"
)

type configCmd struct{}

// Run prints the effective settings and whether they fit; exit 1 when they do not.
func (configCmd) Run(t *tool) error {
	derived, err := t.derived()
	if err != nil {
		return err
	}
	settings := map[string]any{}
	var rows [][]string
	v, kind := reflect.ValueOf(t.cfg), reflect.TypeOf(t.cfg)
	for n := range kind.NumField() {
		f := kind.Field(n)
		value := fmt.Sprint(v.Field(n).Interface())
		if secret := f.Tag.Get("secret"); secret != "" {
			value = config.Masked(secret, value)
		}
		env := f.Tag.Get("env")
		if instead, ok := derived[env]; ok {
			value = instead
		}
		settings[env] = value
		rows = append(rows, []string{env, value})
	}
	invalid := t.cfg.Check()
	budget := t.cfg.Budget().String()
	object := map[string]any{"ok": invalid == nil, "settings": settings, "budget": budget}
	text := "\nbudget: " + budget
	if invalid != nil {
		object["refused"] = invalid.Error()
		text += "\n\nrefused: " + invalid.Error()
	}
	if !t.json {
		if err := t.table("SETTING\tVALUE", rows); err != nil {
			return err
		}
	}
	if err := t.tell(object, text); err != nil {
		return err
	}
	if invalid != nil {
		return errFound
	}
	return nil
}

// derived tells what is in force where a setting is empty and follows from others, or from what `hapax dev` keeps.
func (t *tool) derived() (map[string]string, error) {
	dir, err := t.dataDir()
	if err != nil {
		return nil, err
	}
	values := map[string]string{"HAPAX_DATA_DIR": dir}
	if t.cfg.DatabaseURL != "" {
		if t.cfg.OwnerURL == "" {
			values["HAPAX_OWNER_DATABASE_URL"] = "as HAPAX_DATABASE_URL"
		}
		return values, nil
	}
	private := "private PostgreSQL in " + filepath.Join(dir, clusterFolder)
	values["HAPAX_DATABASE_URL"], values["HAPAX_OWNER_DATABASE_URL"], values["HAPAX_ENVIRONMENT"] = private, private, devEnvironment
	if t.cfg.SecretKey == "" {
		path := filepath.Join(dir, memoryFile)
		switch _, err := os.Stat(path); {
		case err == nil:
			values["HAPAX_SECRET_KEY"] = config.Masked("all", path) + " from " + path
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return values, nil
}
