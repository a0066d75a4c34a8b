package sim

import (
	"errors"
	"fmt"
	"slices"
)

// errViolation is what a constraint of the schema refuses.
var errViolation = errors.New("violates the schema")

func violates(constraint string) error { return fmt.Errorf("%w: %s", errViolation, constraint) }

// unique is one unique index: rows for which applies is false are not in it.
type unique[V any] struct {
	name string
	key  func(V) (key any, applies bool)
}

// table holds rows by primary key, in the order of insertion, with its unique indexes and CHECKs. Rows are values: what
// was read never changes.
type table[K comparable, V any] struct {
	name    string
	key     func(V) K
	check   func(V) error
	uniques []unique[V]

	rows  map[K]V
	order []K
	index []map[any]K // aligned with uniques
}

func newTable[K comparable, V any](name string, key func(V) K, check func(V) error, uniques ...unique[V]) *table[K, V] {
	t := &table[K, V]{name: name, key: key, check: check, uniques: uniques, rows: map[K]V{}}
	for range uniques {
		t.index = append(t.index, map[any]K{})
	}
	return t
}

// conflict names the index that refuses a row, or "".
func (t *table[K, V]) conflict(row V) string {
	k := t.key(row)
	for n, u := range t.uniques {
		key, applies := u.key(row)
		if other, taken := t.index[n][key]; applies && taken && other != k {
			return u.name
		}
	}
	return ""
}

func (t *table[K, V]) get(k K) (V, bool) {
	v, ok := t.rows[k]
	return v, ok
}

// by finds a row by the unique index of that name.
func (t *table[K, V]) by(index string, key any) (row V, ok bool) {
	n := slices.IndexFunc(t.uniques, func(u unique[V]) bool { return u.name == index })
	k, ok := t.index[n][key]
	if ok {
		row = t.rows[k]
	}
	return row, ok
}

// each goes over the rows in the order of insertion until f says no.
func (t *table[K, V]) each(f func(V) bool) {
	for _, k := range t.order {
		if !f(t.rows[k]) {
			return
		}
	}
}

// all gives the rows for which f holds, in the order of insertion.
func (t *table[K, V]) all(f func(V) bool) (rows []V) {
	for _, k := range t.order {
		if row := t.rows[k]; f(row) {
			rows = append(rows, row)
		}
	}
	return rows
}

// insert adds a row; a row with its primary key, a taken unique key or a broken CHECK is refused with an error.
func (t *table[K, V]) insert(x *tx, row V) error {
	if _, exists := t.rows[t.key(row)]; exists {
		return violates(t.name + "_pkey")
	}
	return t.put(x, row)
}

// absorb is insert with ON CONFLICT on one index, or on the primary key (""), DO NOTHING: CHECKs come first, every other
// index still raises. It returns whether the row is new.
func (t *table[K, V]) absorb(x *tx, arbiter string, row V) (bool, error) {
	if err := t.check(row); err != nil {
		return false, fmt.Errorf("%s: %w", t.name, err)
	}
	if t.taken(arbiter, row) {
		return false, nil
	}
	err := t.insert(x, row)
	return err == nil, err
}

func (t *table[K, V]) taken(arbiter string, row V) bool {
	if arbiter == "" {
		_, exists := t.rows[t.key(row)]
		return exists
	}
	n := slices.IndexFunc(t.uniques, func(u unique[V]) bool { return u.name == arbiter })
	key, applies := t.uniques[n].key(row)
	_, exists := t.index[n][key]
	return applies && exists
}

// put inserts or replaces a row and remembers how to undo it.
func (t *table[K, V]) put(x *tx, row V) error {
	if err := t.check(row); err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	if name := t.conflict(row); name != "" {
		return violates(name)
	}
	k := t.key(row)
	old, existed := t.rows[k]
	if existed {
		t.unindex(k, old)
	} else {
		t.order = append(t.order, k)
	}
	t.rows[k] = row
	t.reindex(k, row)
	x.undo = append(x.undo, func() {
		t.unindex(k, row)
		if existed {
			t.rows[k] = old
			t.reindex(k, old)
			return
		}
		delete(t.rows, k)
		t.order = t.order[:len(t.order)-1] // undone in reverse: it is the last one
	})
	return nil
}

// remove deletes a row and remembers how to undo it.
func (t *table[K, V]) remove(x *tx, k K) {
	row, ok := t.rows[k]
	if !ok {
		return
	}
	at := slices.Index(t.order, k)
	t.order = slices.Delete(t.order, at, at+1)
	delete(t.rows, k)
	t.unindex(k, row)
	x.undo = append(x.undo, func() {
		t.order = slices.Insert(t.order, at, k)
		t.rows[k] = row
		t.reindex(k, row)
	})
}

func (t *table[K, V]) reindex(k K, row V) {
	for n, u := range t.uniques {
		if key, applies := u.key(row); applies {
			t.index[n][key] = k
		}
	}
}

func (t *table[K, V]) unindex(k K, row V) {
	for n, u := range t.uniques {
		if key, applies := u.key(row); applies {
			delete(t.index[n], key)
		}
	}
}
