"""Tools with a loop of their own.

litgpt, llamafactory_v1, open_instruct, torchtitan, torchtune
torchtitan_registry   torchtitan's Python configurations, from their text
"""
