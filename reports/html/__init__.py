"""Plans, sweeps and runs as HTML that needs nothing from elsewhere.

    render, plan, speed   `render_html` and the sections of a plan's page
    run, sweep            `render_run_html`, `render_sweep_html`
    page, style           the frame that all share, light, dark and on paper
    notebook              fragments for notebooks; found by the entry point `gpu_plan.notebook`

Words and figures come from the other reports; every string passes `reports.markup`. Pictures need matplotlib.
"""
