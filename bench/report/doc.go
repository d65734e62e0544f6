// Package report turns measured values into medians, ratios, verdicts, tables and plots. It measures nothing, and prints no
// figure that was not measured: what failed or was not run says so in its place.
package report
