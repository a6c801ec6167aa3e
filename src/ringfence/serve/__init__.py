"""Predictions with certificates over HTTP: a certification answers requests while they come.

served.py is the whole of it without a network: requests that are in flight share batches of one engine. app.py puts
HTTP around it, certificates.py signs what it says, client.py asks and checks.
"""
