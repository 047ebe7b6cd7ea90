"""Widgets of the explorer, one per file; each draws a scene and knows nothing else.

    main                    the explorer's own screen, made of the others
    picture, plans, status  the picture, the table of plans, what goes on
    keys                    the footer
    drawn, kept_table       what several share: drawn from the scene; rows drawn anew only when they differ

Textual; what is drawn comes from `tui.picture`.
"""
