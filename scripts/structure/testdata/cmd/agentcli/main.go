package main

import "github.com/urfave/cli/v2"

var flags = []cli.Flag{&cli.IntFlag{Name: "limit"}, &cli.StringFlag{Name: "model"}}

func main() { helper() }
