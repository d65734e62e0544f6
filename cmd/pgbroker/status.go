package main

import "github.com/spf13/cobra"

func newStatusCmd(g *globals) *cobra.Command {
	return &cobra.Command{Use: "status", Run: func(*cobra.Command, []string) {}}
}
func newGroupCmd(g *globals) *cobra.Command {
	return &cobra.Command{Use: "group", Run: func(*cobra.Command, []string) {}}
}
