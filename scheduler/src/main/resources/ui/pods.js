// The pods that hold or request a GPU. Only the rows in view are in the document.
import { Component, html, useEffect, useMemo } from './standalone.module.js';
import {
  Missing,
  Namespaces,
  NodeLink,
  PodLink,
  Select,
  ShareBar,
  TextField,
  announce,
  count,
  idleSince,
  memory,
  percent,
  plural,
  time,
  useShares,
} from './parts.js';

const ROW = 40;
const PHASES = ['Bound', 'Pending', 'Terminating'];
const SORTS = {
  name: ['Name', null],
  memory: ['Memory granted', (share) => -(share.status.memoryMiB ?? 0)],
  idle: ['Idle the longest', (share) => idleSince(share)?.getTime() ?? Infinity],
};

function select(shares, { q = '', phase, idle, sort }) {
  const text = q.toLowerCase();
  const found = [];
  for (const [key, share] of shares) {
    if (phase && share.status.phase !== phase) continue;
    if (idle && !idleSince(share)) continue;
    if (text && !key.includes(text) && !share.status.nodeName?.includes(text)) continue;
    found.push([key, share]);
  }
  found.sort((one, other) => (one[0] < other[0] ? -1 : 1));
  const rank = SORTS[sort]?.[1];
  if (rank) found.sort((one, other) => rank(one[1]) - rank(other[1]));
  return found.map(([, share]) => share);
}

function Row({ share, at }) {
  const { metadata, status } = share;
  const idle = idleSince(share);
  return html`<tr aria-rowindex=${at + 2}>
    <td class="name" title=${`${metadata.namespace}/${metadata.name}`}>
      <${PodLink} namespace=${metadata.namespace} name=${metadata.name} />
    </td>
    <td>${status.phase}</td>
    <td class="name">
      ${status.nodeName ? html`<${NodeLink} node=${status.nodeName} />` : '–'}
    </td>
    <td><${ShareBar} used=${status.usage?.memoryMiB} granted=${status.memoryMiB} print=${memory} /></td>
    <td>
      ${percent(status.usage?.utilizationPercent)}${status.cores === 0 && ', no limit'}${
        status.cores > 0 && ` of ${percent(status.cores)}`
      }
    </td>
    <td>${plural(status.gpus, 'GPU')}</td>
    <td class="name" title=${status.reason ?? ''}>
      ${idle ? html`<span class="warn-text">idle since ${time(idle)}</span>` : (status.reason ?? '')}
    </td>
  </tr>`;
}

class Table extends Component {
  state = { first: 0, rows: 40 };

  componentDidMount() {
    this.measure = () => {
      this.frame ??= requestAnimationFrame(() => {
        this.frame = null;
        if (!this.base) return;
        const first = Math.max(0, Math.floor(-this.base.getBoundingClientRect().top / ROW) - 5) & ~3;
        const rows = Math.min(80, Math.ceil(innerHeight / ROW) + 14);
        if (first !== this.state.first || rows !== this.state.rows) this.setState({ first, rows });
      });
    };
    addEventListener('scroll', this.measure, { passive: true });
    addEventListener('resize', this.measure);
    this.measure();
  }

  componentDidUpdate() {
    this.measure();
  }

  componentWillUnmount() {
    removeEventListener('scroll', this.measure);
    removeEventListener('resize', this.measure);
    cancelAnimationFrame(this.frame);
  }

  render({ shares }, { first, rows }) {
    const start = Math.min(first, Math.max(0, shares.length - rows) & ~3);
    const shown = shares.slice(start, start + rows);
    const space = (height) =>
      height > 0 && html`<tr aria-hidden="true" class="space" style=${{ height: `${height}px` }}></tr>`;
    return html`<div class="table-frame">
      <table aria-rowcount=${shares.length + 1} class="pods">
        <thead>
          <tr aria-rowindex="1">
            <th scope="col">Pod</th>
            <th scope="col">Phase</th>
            <th scope="col">Node</th>
            <th scope="col">Memory used of granted</th>
            <th scope="col">GPU time</th><th scope="col">GPUs</th><th scope="col">Remarks</th>
          </tr>
        </thead>
        <tbody>
          ${space(start * ROW)}
          ${shown.map((share, at) => html`<${Row} key=${share.metadata.uid} share=${share} at=${start + at} />`)}
          ${space((shares.length - start - shown.length) * ROW)}
        </tbody>
      </table>
    </div>`;
  }
}

export function Pods({ params, change }) {
  const shares = useShares(params.namespace ?? '');
  const shown = useMemo(
    () => select(shares.items, params),
    [shares.items, shares.version, params.q, params.phase, params.idle, params.sort],
  );
  const filtered = params.q || params.phase || params.idle;
  useEffect(() => {
    if (filtered) announce(`${plural(shown.length, 'pod')} shown.`);
  }, [filtered && shown.length]);
  if (shares.error) return html`<${Namespaces} error=${shares.error} namespace=${params.namespace} change=${change} />`;
  const granted = shown.reduce((sum, share) => sum + (share.status.memoryMiB ?? 0), 0);
  const idle = shown.filter(idleSince);
  const idleMemory = idle.reduce((sum, share) => sum + (share.status.memoryMiB ?? 0), 0);
  return html`
    ${params.view === 'pods' && html`<h1>Pods</h1>`}
    ${shares.missing.map((error) => html`<p class="warn-text">${error.message}</p>`)}
    <p class="lead">
      ${plural(shown.length, 'pod')}${filtered ? ` of ${count(shares.items.size)}` : ''}, ${memory(granted)} granted.
      ${idle.length > 0 && ` ${plural(idle.length, 'pod')} with ${memory(idleMemory)} idle for 10 min or longer.`}
    </p>
    <div class="toolbar">
      <${TextField}
        label="Search"
        type="search"
        placeholder="pod, namespace or node"
        value=${params.q ?? ''}
        change=${(q) => change({ q })}
      />
      <${Select}
        label="Phase"
        options=${[['', 'all'], ...PHASES.map((phase) => [phase, phase])]}
        value=${params.phase ?? ''}
        change=${(phase) => change({ phase })}
      />
      <${Select}
        label="Sort by"
        options=${Object.entries(SORTS).map(([sort, [label]]) => [sort, label])}
        value=${params.sort ?? 'name'}
        change=${(sort) => change({ sort })}
      />
      <label class="check">
        <input
          type="checkbox"
          checked=${Boolean(params.idle)}
          onChange=${(event) => change({ idle: event.target.checked ? '1' : '' })}
        />
        Idle only
      </label>
    </div>
    ${
      shown.length === 0 && shares.complete
        ? html`<${Missing} title="No pod">
          ${filtered ? 'No pod matches the filters.' : 'No pod holds or requests a GPU here.'}
        <//>`
        : html`<${Table} shares=${shown} />`
    }
  `;
}
