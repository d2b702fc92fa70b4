"""The page's style and behaviour, as constants: the page loads nothing, and its policy allows these two texts only (by hash)."""

from __future__ import annotations

CSS = """
:root{color-scheme:light dark;
--bg:#f6f7f9;--card:#fff;--ink:#1b1f24;--soft:#57606a;--line:#d5dae0;--zebra:#f6f8fa;
--fail:#b42318;--warn:#8a5a00;--pass:#1a7f37;--info:#0b62a8;
--fail-bg:#fdeceb;--warn-bg:#fdf3d9;--pass-bg:#e3f5e8;--info-bg:#e5f1fb;--mono:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
@media(prefers-color-scheme:dark){:root{
--bg:#0f1318;--card:#171c23;--ink:#e4e8ec;--soft:#9aa5b1;--line:#2d343d;--zebra:#1c222a;
--fail:#ff8e84;--warn:#e8b84a;--pass:#62c77d;--info:#6cb6ff;
--fail-bg:#3a1b1a;--warn-bg:#352a10;--pass-bg:#15301d;--info-bg:#12293e}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:22px;margin:0;display:flex;gap:12px;align-items:center;flex-wrap:wrap}
h2{font-size:17px;margin:34px 0 12px}
h3{font-size:15px;margin:0;overflow-wrap:anywhere}
code{font-family:var(--mono);font-size:.88em;overflow-wrap:anywhere}
.badge{font-size:12px;font-weight:700;letter-spacing:.04em;padding:2px 10px;border-radius:99px;text-transform:uppercase;white-space:nowrap}
.fail,.error{color:var(--fail);background:var(--fail-bg)}
.warn,.warning,.inconclusive{color:var(--warn);background:var(--warn-bg)}
.pass{color:var(--pass);background:var(--pass-bg)}.info{color:var(--info);background:var(--info-bg)}
.lead{color:var(--soft);margin:8px 0 0}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;margin:0 0 12px}
.facts{list-style:none;margin:14px 0 0;padding:0;color:var(--soft);font-size:14px}
.facts li{overflow-wrap:anywhere}
.finding{border-left:4px solid var(--line);padding:12px 16px}
.finding.is-error{border-left-color:var(--fail)}.finding.is-warning{border-left-color:var(--warn)}.finding.is-info{border-left-color:var(--info)}
.finding p{margin:6px 0 0;overflow-wrap:anywhere}
.finding p.soft,.soft{color:var(--soft)}
.top{display:flex;gap:10px;align-items:center;flex-wrap:wrap}.top .grow{flex:1 1 auto;min-width:0}
dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 16px;margin:12px 0 0}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
a{color:var(--info)}
.layer{border-top:1px solid var(--line);margin-top:14px;padding-top:12px}
.bar{display:block;width:260px;max-width:100%;height:10px;border-radius:5px;margin:6px 0 2px}
.b-hit{fill:var(--pass)}.b-tier{fill:var(--info)}.b-miss{fill:var(--warn)}.b-unknown{fill:var(--line)}
details{margin-top:12px}summary{cursor:pointer;color:var(--soft)}summary:hover{color:var(--ink)}
.scroll{overflow-x:auto;margin-top:8px}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:5px 10px;border-bottom:1px solid var(--line);vertical-align:top}
#overview td{white-space:nowrap}#overview td code{overflow-wrap:normal}
thead th{white-space:nowrap;color:var(--soft);font-weight:600}
tbody tr:hover{background:var(--zebra)}
th button{all:unset;cursor:pointer;font-weight:600}th button:hover,th button:focus-visible{color:var(--ink);text-decoration:underline}
th[aria-sort=ascending] button::after{content:" \\2191"}th[aria-sort=descending] button::after{content:" \\2193"}
tr.bad td{color:var(--fail);background:var(--fail-bg)}
td.num{text-align:right}th.num{text-align:right}
.one,.range{white-space:nowrap}.range{display:none}
.buckets:has(.fold:checked) tr.same{display:none}
.buckets:has(.fold:checked) .range{display:inline}
.buckets:has(.fold:checked) .range+.one{display:none}
.buckets label{color:var(--soft);font-size:13.5px;display:inline-block;margin-top:8px}
footer{color:var(--soft);font-size:13px;margin-top:36px}
@media(max-width:640px){dl{grid-template-columns:1fr;gap:0}dd{margin:0 0 6px}}
@media print{body{background:#fff}.card{break-inside:avoid}}
"""

JS = """
document.querySelectorAll('table.sortable').forEach(function(table){
  var heads=[].slice.call(table.querySelectorAll('thead th'));
  heads.forEach(function(th,column){
    var button=th.querySelector('button');
    if(!button)return;
    button.addEventListener('click',function(){
      var down=th.getAttribute('aria-sort')==='ascending';
      heads.forEach(function(h){h.removeAttribute('aria-sort')});
      th.setAttribute('aria-sort',down?'descending':'ascending');
      var body=table.tBodies[0];
      var key=function(row){var cell=row.cells[column];return cell.hasAttribute('data-n')?Number(cell.getAttribute('data-n')):cell.textContent};
      [].slice.call(body.rows).map(function(row,i){return{row:row,key:key(row),i:Number(row.getAttribute('data-i'))}}).sort(function(a,b){
        var order=a.key<b.key?-1:a.key>b.key?1:0;
        return (down?-order:order)||a.i-b.i;
      }).forEach(function(x){body.appendChild(x.row)});
    });
  });
});
"""


def policy() -> str:
    """The Content-Security-Policy of the page: nothing from anywhere, and only these two inline texts."""
    return f"default-src 'none'; style-src '{_hash(CSS)}'; script-src '{_hash(JS)}'; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    from base64 import b64encode
    from hashlib import sha256

    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
