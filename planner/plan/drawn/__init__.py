"""What is drawn of a plan beside its document, as plain values.

lanes   a step stream by stream
"""
