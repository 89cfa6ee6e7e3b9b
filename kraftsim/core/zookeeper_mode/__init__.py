"""ZooKeeper mode, the rules: conversion between requests, znodes and metadata records."""
