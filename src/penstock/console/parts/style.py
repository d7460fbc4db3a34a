"""The style sheet: additions to Quasar's styles, for light and dark."""

CSS = """
:root { --line: #e2e8f0; --soft: #f8fafc; --muted: #64748b; --ok: #15803d; --bad: #dc2626; --warn: #b45309; }
.body--dark { --line: #1e293b; --soft: #111a2c; --muted: #94a3b8;
  --ok: #4ade80; --bad: #f87171; --warn: #fbbf24; }
body { font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
.app-header { background: #134e4a !important; color: #fff; }
.brand { color: #fff !important; font-weight: 700; text-decoration: none; }
.cluster-name { opacity: .85; font-family: ui-monospace, monospace; font-size: 13px; max-width: 40vw; }
.nav-link { display: flex; gap: 10px; align-items: center; padding: 8px 12px; border-radius: 8px;
  color: inherit !important; text-decoration: none; }
.nav-link:hover, .nav-link:focus-visible { background: var(--line); }
.nav-active { background: #0f766e22; color: #0f766e !important; font-weight: 600; }
.body--dark .nav-active { color: #5eead4 !important; }
.page-content { max-width: 1400px; margin: 0 auto; }
.page-title { font-size: 1.5rem; line-height: 2rem; font-weight: 650; margin: 0; }
.muted { color: var(--muted); }
.ok { color: var(--ok); } .bad { color: var(--bad); } .warn { color: var(--warn); }
.mono { font-family: ui-monospace, SFMono-Regular, Menlo, monospace; font-size: 13px; }
.pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.command { border: 1px dashed var(--line); border-radius: 8px; padding: 4px 10px; background: var(--soft); }
.card { border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px; background: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; width: 100%; }
.tiles.numbers { grid-template-columns: repeat(auto-fit, minmax(max(150px, 22%), 1fr)); }
.tile-value { font-size: 1.4rem; font-weight: 650; line-height: 2rem; white-space: nowrap; }
.curves { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(340px, 100%), 1fr)); gap: 12px;
  width: 100%; }
.q-table__container { border: 1px solid var(--line); border-radius: 10px; box-shadow: none !important; }
.q-table th { font-weight: 600; }
.q-table td a, .link { color: #0f766e; text-decoration: none; }
.body--dark .q-table td a, .body--dark .link { color: #5eead4; }
.q-table td a:hover { text-decoration: underline; }
.cell { max-width: 42ch; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.body--dark .q-btn.text-primary, .body--dark .q-field { --q-primary: #5eead4; }
.body--dark .q-btn.text-negative { --q-negative: #f87171; }
.q-tab-panel { padding: 0 !important; }
.diff-add { background: #16a34a22; } .diff-del { background: #dc262622; }
.sql-page { display: grid; grid-template-columns: minmax(0, 1fr) 260px; gap: 12px; }
.sql-main { min-width: 0; }
.sql-editor { height: 180px; border: 1px solid var(--line); border-radius: 10px; overflow: hidden;
  resize: vertical; }
.sql-editor .cm-content, .sql-editor .cm-gutters { font-size: 14px; }
.body--dark .sql-editor .cm-editor, .body--dark .sql-editor .cm-gutters { background: var(--soft); }
.sql-names { max-height: 300px; overflow: auto; }
.sql-error { text-decoration: underline wavy var(--bad) 1.5px; }
.sql-error-line { background: #dc262618 !important; }
.lineage { overflow-x: auto; }
.flights { display: grid; grid-template-columns: minmax(0, 3fr) minmax(220px, 1fr); gap: 12px; }
.flights-chart { height: 420px; }
.flights-board { display: grid; gap: 12px; align-content: start; }
.legend-dot { width: 12px; height: 12px; border-radius: 4px; display: inline-block; }
.edge { padding: 2px 0; border-bottom: 1px solid var(--line); }
.log-lines { max-height: 50vh; overflow: auto; display: flex; flex-direction: column-reverse; }
.chart-choice { min-width: 160px; }
@media (max-width: 900px) { .sql-page, .flights { grid-template-columns: minmax(0, 1fr); }
  .flights-chart { height: 260px; } }
@media (max-width: 600px) { .page-content { padding: 10px !important; } .cell { max-width: 20ch; } }
"""
