package main

import (
	"context"
	"errors"
)

func pgbenchCommand(context.Context, []string) error { return errors.New("not yet") }
