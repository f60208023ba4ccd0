package main

func back() { helper() }
