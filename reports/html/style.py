"""The pages' style sheet: light and dark by what the reader prefers, narrow and wide, and on paper."""

CSS = """
:root{--ink:#222;--muted:#666;--edge:#b0b0b0;--grid:#ddd;--alarm:#c0392b;--paper:#fff;--band:#f0f2f5;--good:#1f7a3d;
--warn:#a15c00;--font:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif;
color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--ink:#e8e8e6;--muted:#a5a8ad;--edge:#6b6f76;--grid:#34383e;--alarm:#ff7b6b;
--paper:#16181b;--band:#1f2226;--good:#62c983;--warn:#f0b95b}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 var(--font);overflow-wrap:anywhere}
main{max-width:1120px;margin:0 auto;padding:24px 20px 48px}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 4px}
h2{font-size:1.12rem;margin:36px 0 8px;padding-top:10px;border-top:1px solid var(--grid)}
h3{font-size:1rem;margin:20px 0 4px}
p{margin:6px 0;max-width:80ch}
.verdict{display:inline-block;font-weight:700;font-size:.95rem;letter-spacing:.04em;padding:2px 12px;border-radius:4px;
border:2px solid currentColor;margin-bottom:10px}
.fits{color:var(--good)}.tight{color:var(--warn)}.no{color:var(--alarm)}
.muted,.aside{color:var(--muted)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:10px 0}
dt{color:var(--muted)}dd{margin:0}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:16px 0}
.card{background:var(--band);border-radius:6px;padding:10px 14px}
.card b{display:block;font-size:1.25rem;line-height:1.3;font-weight:650}
.card span{display:block;color:var(--muted);font-size:.85rem}
.scroll{overflow-x:auto;margin:8px 0}
table{border-collapse:collapse;font-size:.9rem;width:100%}table.brief{width:auto;min-width:min(100%,430px)}
th,td{text-align:left;padding:4px 14px 4px 0;border-bottom:1px solid var(--grid);vertical-align:top}
th{color:var(--muted);font-weight:500;white-space:nowrap}
th:last-child,td:last-child{padding-right:4px}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
tr.lost td{color:var(--muted)}
td,th{overflow-wrap:break-word}td:first-child{min-width:8em}.reason{min-width:15em}
.swatch{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.5em;vertical-align:-.05em}
.chip{display:inline-block;font-size:.78rem;border:1px solid var(--edge);color:var(--muted);border-radius:9px;
padding:0 8px;white-space:nowrap}
ul{margin:6px 0;padding-left:20px}li{margin:3px 0}
pre{background:var(--band);border-radius:6px;padding:10px 14px;margin:8px 0;overflow-x:auto;white-space:pre;
font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
figure{margin:10px 0}
figure svg{display:block;width:100%;height:auto}
figcaption{color:var(--muted);font-size:.85rem}
.narrow{display:none}
details{margin:10px 0}summary{cursor:pointer;color:var(--muted)}
footer{margin-top:40px;padding-top:10px;border-top:1px solid var(--grid);color:var(--muted);font-size:.85rem}
.heat td{text-align:center;min-width:84px;border:2px solid var(--paper);padding:6px 8px;line-height:1.35}
@media (max-width:640px){main{padding:16px 12px 40px}.wide{display:none}.narrow{display:block}
dl{grid-template-columns:1fr;gap:0}dt{margin-top:6px}h1{font-size:1.25rem}}
@media print{:root{--ink:#000;--muted:#444;--edge:#999;--grid:#ccc;--alarm:#b02a1b;--paper:#fff;--band:#f3f3f3;
--good:#145c2c;--warn:#7a4600;color-scheme:light}
main{max-width:none;padding:0}body{font-size:10pt}h2{margin-top:24px}.wide{display:block}.narrow{display:none}
h2,h3,p.lead{break-after:avoid}figure,.card,tr,pre,table.short{break-inside:avoid}thead{display:table-header-group}
.scroll{overflow:visible}pre{white-space:pre-wrap;font-size:7.5pt}
details::details-content{content-visibility:visible;display:block}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}@page{margin:14mm}}
""".replace("\n", "")
