"""Limits of `recipe doctor` for real programs on a busy machine: its own are short for who waits at a terminal."""

from builder.execute import docker_daemon, doctor, doctor_readings

doctor.SECONDS = doctor.CONTROLLER = doctor_readings.SECONDS = docker_daemon.PATIENCE = 240.0
