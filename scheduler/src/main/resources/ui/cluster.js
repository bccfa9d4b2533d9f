// Every GPU as a tile, grouped by node. Only the nodes in view are in the document.
import { Component, html, useEffect, useMemo } from './standalone.module.js';
import {
  Bar,
  Figure,
  Link,
  Missing,
  PodLink,
  Select,
  TextField,
  announce,
  count,
  exactMemory,
  fraction,
  go,
  href,
  memory,
  percent,
  plural,
  useCollection,
  useShares,
} from './parts.js';
import { Pods } from './pods.js';

/** What tiles can show: the fraction that is filled, and the words for it. */
const METRICS = {
  used: {
    label: 'Memory used',
    value: (status) => status.usage?.memoryMiB,
    of: (status) => status.memoryMiB.total,
    words: (status) =>
      status.usage?.memoryMiB === undefined
        ? 'memory used not known'
        : `${exactMemory(status.usage.memoryMiB)} of ${exactMemory(status.memoryMiB.total)} used`,
  },
  allocated: {
    label: 'Memory allocated',
    value: (status) => status.memoryMiB.allocated,
    of: (status) => status.memoryMiB.total,
    words: (status) => `${exactMemory(status.memoryMiB.allocated)} of ${exactMemory(status.memoryMiB.total)} allocated`,
  },
  stranded: {
    label: 'Memory stranded',
    value: (status) => status.strandedMemoryMiB,
    of: (status) => status.memoryMiB.total,
    words: (status) =>
      status.strandedMemoryMiB === undefined
        ? 'stranded memory not known'
        : `${exactMemory(status.strandedMemoryMiB)} stranded`,
  },
  cores: {
    label: 'Cores allocated',
    value: (status) => status.cores.allocated,
    of: (status) => status.cores.total,
    words: (status) => `${percent(status.cores.allocated)} of ${percent(status.cores.total)} cores allocated`,
  },
  health: {
    label: 'Health',
    value: (status) => (health(status) === 'ok' ? 1 : 0),
    of: () => 1,
    words: () => '',
  },
};

const health = (status) => (status.healthy ? (status.cordoned ? 'cordoned' : 'ok') : 'unhealthy');
const MARKS = { ok: 'OK', cordoned: 'cord.', unhealthy: 'fail' };

const healthWords = (status) =>
  status.healthy ? (status.cordoned ? 'cordoned' : 'healthy') : `unhealthy: ${status.reason ?? 'no reason given'}`;

const filled = (metric, status) => fraction(METRICS[metric].value(status) ?? 0, METRICS[metric].of(status));

const tileWords = (metric, status) =>
  [
    `GPU ${status.index} of ${status.nodeName}`,
    status.model,
    METRICS[metric].words(status),
    plural(status.shares, 'share'),
    healthWords(status),
  ]
    .filter(Boolean)
    .join(', ');

function tileText(metric, status) {
  if (metric === 'health') return MARKS[health(status)];
  const value = METRICS[metric].value(status);
  return value === undefined ? '–' : percent(filled(metric, status) * 100);
}

/** The GPUs that the filters select, by node in the order of names. */
function group(gpus, nodes, filters, ofNamespace) {
  const text = (filters.q ?? '').toLowerCase();
  const oneNode = nodes.has(filters.node);
  const groups = new Map();
  for (const gpu of gpus) {
    const status = gpu.status;
    if (filters.model && status.model !== filters.model) continue;
    if (filters.node && !(oneNode ? status.nodeName === filters.node : status.nodeName.includes(filters.node)))
      continue;
    if (ofNamespace && !ofNamespace.has(status.uuid)) continue;
    if (
      text &&
      !status.nodeName.toLowerCase().includes(text) &&
      !gpu.metadata.name.includes(text) &&
      !status.model.toLowerCase().includes(text)
    )
      continue;
    let found = groups.get(status.nodeName);
    if (!found)
      groups.set(status.nodeName, (found = { name: status.nodeName, node: nodes.get(status.nodeName), gpus: [] }));
    found.gpus.push(gpu);
  }
  groups.forEach((one) => one.gpus.sort((a, b) => a.status.index - b.status.index));
  return inOrder([...groups.keys()]).map((name) => groups.get(name));
}

/** Counts that change several times in a moment are said once. */
const ANNOUNCE_DELAY = 2_000;

const order = new Intl.Collator(undefined, { numeric: true });
let ranks = new Map();

/** Names of nodes in order; compared only when new ones appear, because that takes longer than all else here. */
function inOrder(names) {
  if (!names.every((name) => ranks.has(name))) {
    const all = [...new Set([...ranks.keys(), ...names])].sort(order.compare);
    ranks = new Map(all.map((name, rank) => [name, rank]));
  }
  return names.sort((one, other) => ranks.get(one) - ranks.get(other));
}

/** A node and its tiles; drawn again only when it changed. */
class NodeCard extends Component {
  shouldComponentUpdate(next) {
    const { group: before, metric, focused, layout } = this.props;
    const after = next.group;
    return (
      metric !== next.metric ||
      focused !== next.focused ||
      layout !== next.layout ||
      before.name !== after.name ||
      before.node !== after.node ||
      before.gpus.length !== after.gpus.length ||
      before.gpus.some((gpu, at) => gpu !== after.gpus[at])
    );
  }

  render({ group: { name, node, gpus }, metric, focused }) {
    const allocated = gpus.reduce((sum, gpu) => sum + gpu.status.memoryMiB.allocated, 0);
    const total = gpus.reduce((sum, gpu) => sum + gpu.status.memoryMiB.total, 0);
    const shares = gpus.reduce((sum, gpu) => sum + gpu.status.shares, 0);
    const reserved = node?.status.reservations.length ?? 0;
    const closed = node && !node.status.schedulable ? (node.status.reason ?? 'takes no pods') : '';
    return html`<div class="node ${closed ? 'closed' : ''}" role="group" aria-label=${`Node ${name}`}>
      <div class="node-head">
        <${Link} to=${{ view: 'cluster', color: metric, node: name }} tabindex="-1" class="node-name" title=${name}>
          ${name}
        <//>
        <span>${memory(allocated)} / ${memory(total)}</span>
      </div>
      <div class="tiles">
        ${gpus.map(
          (gpu) => html`<a
            key=${gpu.metadata.name}
            class="tile ${metric} ${health(gpu.status)}"
            href=${href({ view: 'gpu', gpu: gpu.metadata.name })}
            data-gpu=${gpu.metadata.name}
            tabindex=${gpu.metadata.name === focused ? 0 : -1}
            aria-label=${tileWords(metric, gpu.status)}
            style=${{ '--filled': `${filled(metric, gpu.status) * 100}%` }}
            >${tileText(metric, gpu.status)}</a
          >`,
        )}
      </div>
      <div class="node-foot" title=${closed}>
        ${closed ? `takes no pods: ${closed}` : plural(shares, 'share')}
        ${!closed && reserved > 0 && ` · ${count(reserved)} reserved`}
      </div>
    </div>`;
  }
}

/** So many elements and texts of cards may be in the document; the frame needs some hundred. */
const MOST_NODES = 1500;
const GAP = 10;
/** Height of the page's header, which covers what scrolls below it. */
const HEADER = 60;
const PADDING = 10;

/** Sizes of cards: larger ones on large screens, so that their number stays bounded. */
function layout(width, height, groups) {
  const most = groups.reduce((max, one) => Math.max(max, one.gpus.length), 1);
  const across = Math.min(most, 8);
  const down = Math.ceil(most / across);
  for (let tile = 32; ; tile += 4) {
    const card = Math.max(5.4 * tile, across * (tile + 4) - 4 + 2 * PADDING);
    const columns = Math.max(1, Math.floor((width + GAP) / (card + GAP)));
    const row = 58 + down * (tile + 4) + GAP;
    const rows = Math.ceil(height / row) + 2;
    if (columns * rows * (10 + 2 * most) <= MOST_NODES || tile > 160) return { tile, columns, row, rows, most };
  }
}

/*
 * While it scrolls, a card that leaves on one side becomes the one that appears on the other: its key is its place
 * modulo the number of cards. The focus stays with the GPU that has it; while that one is out of view, the grid itself
 * has it.
 */
class Grid extends Component {
  state = { first: 0, width: 1200, height: 800 };
  focused = null;
  wantsFocus = false;

  componentDidMount() {
    this.top = this.base.getBoundingClientRect().top + scrollY;
    this.measure = () => {
      this.frame ??= requestAnimationFrame(() => {
        this.frame = null;
        this.show(scrollY);
      });
    };
    this.resize = new ResizeObserver(() => this.base && this.show(scrollY, true));
    this.resize.observe(document.documentElement);
    addEventListener('scroll', this.measure, { passive: true });
    addEventListener('mousedown', this.pressed);
    this.show(scrollY, true);
  }

  componentWillUnmount() {
    removeEventListener('scroll', this.measure);
    removeEventListener('mousedown', this.pressed);
    this.resize.disconnect();
    cancelAnimationFrame(this.frame);
  }

  show(scrolled, resized) {
    let { width, height } = this.state;
    if (resized) {
      const place = this.base.getBoundingClientRect();
      this.top = place.top + scrollY;
      [width, height] = [place.width, innerHeight];
    }
    const first = Math.max(0, Math.floor((scrolled - this.top) / this.layout.row) - 1);
    if (first !== this.state.first || width !== this.state.width || height !== this.state.height)
      this.setState({ first, width, height });
  }

  componentDidUpdate() {
    const active = document.activeElement;
    if (this.wantsFocus) {
      const tile = this.base.querySelector(`[data-gpu="${CSS.escape(this.focused)}"]`);
      this.wantsFocus = !tile;
      tile?.focus({ preventScroll: true });
    } else if (this.hasFocus && document.hasFocus() && active !== this.base && active?.dataset.gpu !== this.focused) {
      this.base.focus({ preventScroll: true });
    }
  }

  position(gpu) {
    const { groups } = this.props;
    for (let at = 0; at < groups.length; at++) {
      const index = groups[at].gpus.findIndex((one) => one.metadata.name === gpu);
      if (index >= 0) return [at, index];
    }
    return [0, 0];
  }

  key = (event) => {
    const { groups } = this.props;
    if (event.altKey || event.metaKey || groups.length === 0) return;
    let [at, index] = this.position(this.focused);
    const { columns, rows, row } = this.layout;
    const page = Math.max(1, rows - 3) * columns;
    const steps = { ArrowUp: -columns, ArrowDown: columns, PageUp: -page, PageDown: page };
    if (event.key in steps) at += steps[event.key];
    else if (event.key === 'ArrowRight') index++;
    else if (event.key === 'ArrowLeft') index--;
    else if (event.key === 'Home') [at, index] = [event.ctrlKey ? 0 : at, 0];
    else if (event.key === 'End') [at, index] = [event.ctrlKey ? groups.length - 1 : at, Infinity];
    else return;
    event.preventDefault();
    if (index < 0) [at, index] = [at - 1, Infinity];
    if (index !== Infinity && groups[at] && index >= groups[at].gpus.length && event.key === 'ArrowRight')
      [at, index] = [at + 1, 0];
    if (at < 0 || at >= groups.length) return;
    const gpus = groups[at].gpus;
    this.focused = gpus[Math.min(index, gpus.length - 1)].metadata.name;
    this.wantsFocus = true;
    const top = this.top + Math.floor(at / columns) * row - scrollY;
    if (top < HEADER) scrollBy(0, top - HEADER);
    else if (top + row > innerHeight) scrollBy(0, top + row - innerHeight);
    this.show(scrollY);
    this.forceUpdate();
  };

  focusIn = (event) => {
    this.hasFocus = true;
    const gpu = event.target.dataset?.gpu;
    if (gpu && gpu !== this.focused && !this.wantsFocus) {
      this.focused = gpu;
      this.forceUpdate();
    }
  };

  /** Without a target the focus is lost because a card moved in the document, which is not the user's doing. */
  focusOut = (event) => {
    if (event.relatedTarget) this.hasFocus = this.base.contains(event.relatedTarget);
  };

  pressed = (event) => {
    if (!this.base.contains(event.target)) this.hasFocus = false;
  };

  hover = (event) => {
    const tile = event.target.closest('[data-gpu]');
    if (tile) tile.title = tile.getAttribute('aria-label');
  };

  click = (event) => {
    const tile = event.target.closest('[data-gpu]');
    if (!tile || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    go({ view: 'gpu', gpu: tile.dataset.gpu });
  };

  render({ groups, metric }, { first, width, height }) {
    this.layout = layout(width, height, groups);
    const { columns, row, rows, tile, most } = this.layout;
    const start = Math.min(first, Math.max(0, Math.ceil(groups.length / columns) - rows)) * columns;
    const size = rows * columns;
    const shown = groups.slice(start, start + size);
    const holds = (one) => one.gpus.some((gpu) => gpu.metadata.name === this.focused);
    if (!this.hasFocus && !shown.some(holds)) this.focused = shown[0]?.gpus[0]?.metadata.name ?? null;
    const focusedGroup = shown.find(holds);
    return html`<div
      class="grid"
      role="group"
      aria-label="GPUs by node"
      aria-describedby="grid-help"
      style=${{
        height: `${Math.ceil(groups.length / columns) * row}px`,
        '--tile': `${tile}px`,
        '--across': Math.min(most, 8),
      }}
      onKeyDown=${this.key}
      onClick=${this.click}
      tabindex="-1"
      onMouseOver=${this.hover}
      onfocusin=${this.focusIn}
      onfocusout=${this.focusOut}
    >
      <div
        class="cards"
        style=${{
          transform: `translateY(${(start / columns) * row}px)`,
          gridTemplateColumns: `repeat(${columns}, minmax(0, 1fr))`,
          gridAutoRows: `${row - GAP}px`,
        }}
      >
        ${shown.map(
          (one, at) => html`<${NodeCard}
            key=${(start + at) % size}
            group=${one}
            metric=${metric}
            layout=${tile}
            focused=${one === focusedGroup ? this.focused : null}
          />`,
        )}
      </div>
    </div>`;
  }
}

function Totals({ groups, pending }) {
  const sum = { gpus: 0, healthy: 0, total: 0, allocated: 0, used: 0, known: 0, stranded: 0, cores: 0, coresTotal: 0 };
  for (const { gpus } of groups)
    for (const { status } of gpus) {
      sum.gpus++;
      if (status.healthy) sum.healthy++;
      sum.total += status.memoryMiB.total;
      sum.allocated += status.memoryMiB.allocated;
      if (status.usage?.memoryMiB !== undefined) {
        sum.used += status.usage.memoryMiB;
        sum.known++;
      }
      sum.stranded += status.strandedMemoryMiB ?? 0;
      sum.cores += status.cores.allocated;
      sum.coresTotal += status.cores.total;
    }
  const unhealthy = sum.gpus - sum.healthy;
  return html`<section class="totals" aria-label="Totals of the GPUs shown">
    <${Figure}
      label="GPUs"
      value=${plural(sum.gpus, 'GPU')}
      note=${[
        `on ${plural(groups.length, 'node')}, `,
        unhealthy ? html`<strong class="bad">${count(unhealthy)} unhealthy</strong>` : 'all healthy',
      ]}
    />
    <${Bar}
      label="Memory allocated"
      value=${sum.allocated}
      limit=${sum.total}
      text=${memory(sum.allocated)}
      note=${`of ${memory(sum.total)}`}
    />
    <${Bar}
      label="Memory used"
      value=${sum.used}
      limit=${sum.total}
      text=${sum.known ? memory(sum.used) : 'not known'}
      note=${sum.known < sum.gpus ? `${plural(sum.gpus - sum.known, 'GPU')} without news` : 'as measured'}
    />
    <${Bar}
      label="Memory stranded"
      tone="warn"
      value=${sum.stranded}
      limit=${sum.total}
      text=${memory(sum.stranded)}
      note="free, but no share fits"
    />
    <${Bar}
      label="Cores allocated"
      value=${sum.cores}
      limit=${sum.coresTotal}
      text=${percent(fraction(sum.cores, sum.coresTotal) * 100)}
      note="of all GPUs’ cores"
    />
    <${Figure}
      label="Pending"
      value=${html`<${Link} to=${{ view: 'pending' }}>${pending.error ? '–' : plural(pending.items.size, 'pod')}<//>`}
      note=${pending.error ? 'not yours to see' : 'wait for GPUs'}
    />
  </section>`;
}

const RESERVATIONS = {
  expected: 'until it is bound',
  kept: 'for the pod for which others were evicted',
  binding: 'while it is being bound',
  lingering: 'until its containers have ended',
};

function NodePanel({ node: { metadata, status } }) {
  return html`<section class="panel" aria-label=${`About node ${metadata.name}`}>
    <h2>Node ${metadata.name}</h2>
    <p>
      ${
        status.schedulable
          ? 'Takes pods.'
          : html`<strong class="warn-text">Takes no pods: ${status.reason ?? 'no reason given'}.</strong>`
      }
      ${status.sharingMode && ` Sharing mode ${status.sharingMode}.`}
      ${status.gpuPlacement && ` GPU placement ${status.gpuPlacement}.`}
      ${` ${plural(status.slots.free, 'slot')} of ${count(status.slots.total)} free.`}
    </p>
    ${
      status.reservations.length > 0 &&
      html`<ul>
      ${status.reservations.map(
        (reserved) => html`<li key=${reserved.uid}>
          ${memory(reserved.gpus.reduce((sum, gpu) => sum + gpu.memoryMiB, 0))} of${' '}
          ${plural(reserved.gpus.length, 'GPU')} reserved for${' '}
          <${PodLink} namespace=${reserved.namespace} name=${reserved.pod} />,${' '}
          ${RESERVATIONS[reserved.state] ?? reserved.state}
        </li>`,
      )}
    </ul>`
    }
  </section>`;
}

function Legend({ metric }) {
  return html`<ul class="legend" aria-label="Legend">
    ${
      metric === 'health'
        ? html`<li><span class="tile key health"></span>healthy</li>`
        : html`<li>
          <span class=${`tile key ${metric}`} style=${{ '--filled': '60%' }}></span>
          ${METRICS[metric].label.toLowerCase()}, of the GPU’s total
        </li>`
    }
    <li><span class="tile key cordoned"></span>cordoned: takes no new vGPUs</li>
    <li><span class="tile key unhealthy"></span>unhealthy</li>
  </ul>`;
}

export function Cluster({ params, change }) {
  const gpus = useCollection('gpus');
  const nodes = useCollection('gpunodes');
  const namespace = params.namespace ?? '';
  const shares = useShares(namespace || null);
  const pending = useCollection('gpushares', { fieldSelector: 'status.phase=Pending' });
  const metric = METRICS[params.color] ? params.color : 'allocated';

  const ofNamespace = useMemo(() => {
    if (!namespace) return null;
    const held = new Set();
    for (const share of shares.items.values())
      for (const container of share.status.containers) for (const part of container.gpus) held.add(part.uuid);
    return held;
  }, [namespace, shares.items, shares.version]);
  const groups = useMemo(
    () => group(gpus.items.values(), nodes.items, params, ofNamespace),
    [gpus.version, nodes.version, ofNamespace, params.q, params.model, params.node],
  );
  const models = useMemo(
    () => [...new Set([...gpus.items.values()].map((gpu) => gpu.status.model))].sort(order.compare),
    [gpus.version],
  );
  const shown = groups.reduce((sum, one) => sum + one.gpus.length, 0);
  const filtered = params.q || params.model || params.node || namespace;
  useEffect(() => {
    if (filtered) announce(`${plural(shown, 'GPU')} shown.`);
  }, [filtered && shown]);

  const unhealthy = useMemo(() => [...gpus.items.values()].filter((gpu) => !gpu.status.healthy).length, [gpus.version]);
  useEffect(() => {
    if (!gpus.complete || !pending.complete) return undefined;
    const timer = setTimeout(
      () => announce(`${plural(unhealthy, 'GPU')} unhealthy, ${plural(pending.items.size, 'pod')} Pending.`),
      ANNOUNCE_DELAY,
    );
    return () => clearTimeout(timer);
  }, [gpus.complete && unhealthy, pending.complete && pending.items.size]);

  if (gpus.error?.isForbidden)
    return html`
      <h1>Cluster</h1>
      <${Missing} title="The cluster’s GPUs are not yours to see">
        ${gpus.error.message}. The ClusterRole aliquot-gpu-viewer grants it. Pods that you may see show what they hold.
      <//>
      <${Pods} params=${params} change=${change} />
    `;
  return html`
    <h1 class="visually-hidden">Cluster</h1>
    <${Totals} groups=${groups} pending=${pending} />
    <div class="toolbar">
      <fieldset class="choices">
        <legend>Tiles show</legend>
        ${Object.entries(METRICS).map(
          ([name, { label }]) => html`<label key=${name}>
            <input type="radio" name="color" checked=${name === metric} onChange=${() => change({ color: name })} />
            <span>${label}</span>
          </label>`,
        )}
      </fieldset>
      <${TextField}
        label="Search"
        type="search"
        placeholder="node, model or UUID"
        value=${params.q ?? ''}
        change=${(q) => change({ q })}
      />
      <${Select}
        label="Model"
        options=${[['', 'all'], ...models.map((model) => [model, model])]}
        value=${params.model ?? ''}
        change=${(model) => change({ model })}
      />
      <${TextField}
        label="Node"
        size="12"
        placeholder="all"
        value=${params.node ?? ''}
        change=${(node) => change({ node })}
      />
    </div>
    ${shares.missing.map((error) => html`<p class="warn-text">${error.message}</p>`)}
    ${groups.length === 1 && groups[0].node && html`<${NodePanel} node=${groups[0].node} />`}
    <div class="tile-legend">
      <${Legend} metric=${metric} />
      <span>${plural(shown, 'GPU')}${filtered ? ` of ${count(gpus.items.size)}` : ''}</span>
    </div>
    <p id="grid-help" class="visually-hidden">Arrow keys move between GPUs and nodes; Enter opens a GPU.</p>
    ${
      shown === 0 && gpus.complete
        ? html`<${Missing} title="No GPU">
          ${
            filtered
              ? 'No GPU matches the filters.'
              : 'No node has the label of Aliquot’s nodes yet (gpu=on by default), or its node agent has not reported GPUs.'
          }
        <//>`
        : html`<${Grid} groups=${groups} metric=${metric} />`
    }
  `;
}
