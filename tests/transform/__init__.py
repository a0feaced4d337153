"""Tests of the steps of the transform, one file for each module."""
