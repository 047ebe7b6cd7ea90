"""What the explorer shows, as values and styled text: pure, knows no screen.

    scene             all that a screen needs to draw itself, and the words on it
    figures           plans as bars, rows, trees and differences
    lines, host       options, verdict, memory and RAM as lines
    timeline          a step's memory over time as cells
    palette           colours and letters of the categories

Widgets and screens draw these. rich's text, no Textual.
"""
