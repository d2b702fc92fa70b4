"""Style and behaviour of the audit page, on top of the report's (html_assets.py). The page's policy allows these texts only."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

from moe_preflight.report.html_assets import CSS as BASE
from moe_preflight.report.html_assets import JS as SORT

CSS = (
    BASE
    + """
main{max-width:1400px}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:6px 18px;margin:14px 0;padding:0;font-size:13.5px;color:var(--soft)}
.legend .c{display:inline-block;width:20px;border-radius:4px;margin-right:4px}
.find{display:block;margin:0 0 8px;color:var(--soft);font-size:13.5px}
.find input{font:inherit;color:var(--ink);background:var(--card);border:1px solid var(--line);border-radius:6px;
padding:3px 8px;margin-left:6px;width:260px;max-width:60vw}
#matrix{background:var(--card);border:1px solid var(--line)}
#matrix th,#matrix td{white-space:nowrap;padding:3px 8px}
#matrix tbody th{text-align:left;font-weight:500}
#matrix thead th{position:sticky;top:0;background:var(--card);z-index:1;vertical-align:bottom}
#matrix thead th.b{padding:4px 1px;text-align:center}
#matrix thead th.b button{writing-mode:vertical-rl;transform:rotate(180deg);font-size:12px}
#matrix thead th.first,#matrix td.first{border-left:2px solid var(--line)}
#matrix code{overflow-wrap:normal}
.c{text-align:center;font-family:var(--mono);font-size:12px;line-height:1.4;color:var(--ink)}
#matrix td.c{padding:3px 0;min-width:22px;border-left:1px solid var(--bg)}
.c.h{background:#3fa35d;color:#04210d}.c.t{background:#7fb8ea;color:#06243e}.c.m{background:#f1d27a;color:#3b2a00}.c.x{background:#c9362b;color:#fff}.c.u{background:var(--line)}
@media(prefers-color-scheme:dark){.c.h{background:#2b7a45;color:#e9fff0}.c.t{background:#2f6aa0;color:#eef7ff}.c.m{background:#7a5f16;color:#fff3cf}.c.x{background:#b3261e;color:#fff}}
td.off{color:var(--soft)}td.off span{display:block;max-width:400px;overflow:hidden;text-overflow:ellipsis}
#matrix tbody th{max-width:340px;overflow:hidden;text-overflow:ellipsis}
tr[hidden]{display:none}
.open{all:unset;cursor:pointer;color:var(--info)}.open:hover,.open:focus-visible{text-decoration:underline}
tr.chosen th,tr.chosen td:not(.c){background:var(--info-bg)}
#detail{position:sticky;bottom:0;background:var(--card);border:1px solid var(--line);border-top:3px solid var(--info);
border-radius:10px 10px 0 0;padding:12px 16px;max-height:46vh;overflow:auto;box-shadow:0 -6px 24px rgba(0,0,0,.18);z-index:2}
#detail[hidden]{display:none}
#detail .top button{margin-left:auto;font:inherit;cursor:pointer;color:var(--ink);
background:var(--bg);border:1px solid var(--line);border-radius:6px;padding:2px 10px}
#detail td{overflow-wrap:anywhere}#detail td:not(:nth-child(4)):not(:last-child){white-space:nowrap}
"""
)

JS = (
    SORT
    + """
(function(){
  var data=JSON.parse(document.getElementById('data').textContent);
  var table=document.getElementById('matrix'),box=document.getElementById('detail'),chosen=null;
  var text=function(i){return i<0?'':data.texts[i]};
  var put=function(parent,tag,words){var e=document.createElement(tag);if(words!==undefined)e.textContent=words;parent.appendChild(e);return e};
  var close=function(){box.hidden=true;box.textContent='';if(chosen)chosen.classList.remove('chosen');chosen=null};
  var open=function(row){
    close();chosen=row;row.classList.add('chosen');
    var top=put(box,'div');top.className='top';
    put(top,'h3',row.cells[0].textContent+', '+row.cells[1].textContent+', '+row.cells[row.cells.length-1].textContent);
    var x=put(top,'button','Close');x.type='button';x.addEventListener('click',close);
    var list=data.lists[data.rows[Number(row.getAttribute('data-i'))]];
    if(!list.length){put(box,'p',row.cells[row.cells.length-2].textContent)}
    else{
      var t=put(put(box,'div'),'table'),h=put(put(t,'thead'),'tr'),b=put(t,'tbody');
      ['tokens','tuned','path','row','us','kernels'].forEach(function(w){put(h,'th',w)});
      list.forEach(function(c){
        var r=put(b,'tr');
        put(r,'td',String(c[0]));put(r,'td',c[1]);put(r,'td',text(c[2]));
        put(put(r,'td'),'code',c[4]<0?'':text(c[4])+':'+c[5]);
        put(r,'td',c[6]===null?'':String(c[6]));
        put(put(r,'td'),'code',c[3]<0?[text(c[7]),text(c[8])].filter(Boolean).join(' + '):text(c[3]));
      });
    }
    box.hidden=false;
  };
  table.tBodies[0].addEventListener('click',function(e){
    var row=e.target.closest('tr');
    if(!row)return;
    if(row===chosen)close();else open(row);
  });
  document.addEventListener('keydown',function(e){if(e.key==='Escape')close()});
  var find=document.getElementById('find');
  find.addEventListener('input',function(){
    var words=find.value.toLowerCase().split(/\\s+/).filter(Boolean);
    [].slice.call(table.tBodies[0].rows).forEach(function(r){
      var said=(r.cells[0].textContent+' '+r.cells[1].textContent+' '+r.cells[r.cells.length-1].textContent).toLowerCase();
      r.hidden=!words.every(function(w){return said.indexOf(w)>=0});
    });
  });
})();
"""
)


def policy() -> str:
    """The Content-Security-Policy of the page: nothing from anywhere, and only these two inline texts."""
    return f"default-src 'none'; style-src '{_hash(CSS)}'; script-src '{_hash(JS)}'; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
