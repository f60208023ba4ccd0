package main

func helper() { back() }
