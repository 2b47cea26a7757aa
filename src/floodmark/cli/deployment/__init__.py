"""Deployments: files with which a workspace runs by itself on Kubernetes, under systemd or by Compose."""
