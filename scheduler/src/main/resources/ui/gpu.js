// One GPU: its shares as a bar, the last minutes by container, and its health.
import { html } from './standalone.module.js';
import {
  Figure,
  Missing,
  NodeLink,
  PodLink,
  ShareBar,
  Table,
  fraction,
  gpuTime,
  memory,
  percent,
  plural,
  time,
  useAnswer,
  useCollection,
  useShares,
} from './parts.js';
import { Chart, MIB_INCREMENTS, PERCENT_INCREMENTS, memoryOf, seriesColor } from './chart.js';

const HISTORY_PERIOD = 5_000;

/** What containers hold of a GPU, largest first. */
function partsOf(shares, uuid) {
  const parts = [];
  for (const share of shares)
    for (const container of share.status.containers)
      for (const part of container.gpus) if (part.uuid === uuid) parts.push({ share, container: container.name, part });
  return parts.sort((one, other) => other.part.memoryMiB - one.part.memoryMiB);
}

/** What pods hold of a GPU, in the order and the color of the first container of each: not all run at the same time. */
function podsOf(parts, uuid) {
  const pods = new Map();
  parts.forEach(({ share }, at) => {
    const mib = share.status.held?.find((amount) => amount.gpu === uuid)?.memoryMiB ?? 0;
    if (!pods.has(share.metadata.uid)) pods.set(share.metadata.uid, { ...share.metadata, mib, at });
  });
  return [...pods.values()];
}

function Segments({ parts, status }) {
  const { total, allocated } = status.memoryMiB;
  const pods = podsOf(parts, status.uuid);
  const known = pods.reduce((sum, pod) => sum + pod.mib, 0);
  const width = (mib) => ({ width: `${fraction(mib, Math.max(total, allocated)) * 100}%` });
  const other = allocated - known;
  const stranded = Math.max(0, Math.min(status.strandedMemoryMiB ?? 0, total - allocated));
  const free = Math.max(0, total - allocated - stranded);
  const key = (name, text, mib) =>
    html`<li><span class=${`swatch ${name}`}></span>${text} <span class="quiet">${memory(mib)}</span></li>`;
  const words = [
    ...pods.map(({ name, mib }) => `${name} ${memory(mib)}`),
    other > 0 && `reserved or not yours to see ${memory(other)}`,
    stranded > 0 && `stranded ${memory(stranded)}`,
    `free ${memory(free)}`,
  ].filter(Boolean);
  return html`
    <div class="segments" role="img" aria-label=${`Memory of ${memory(total)}: ${words.join(', ')}`}>
      ${pods.map(
        ({ uid, namespace, name, mib, at }) => html`<span
          key=${uid}
          class="segment"
          title=${`${namespace}/${name}: ${memory(mib)}`}
          style=${{ ...width(mib), background: seriesColor(at) }}
          >${fraction(mib, total) > 0.05 && name}</span
        >`,
      )}
      ${other > 0 && html`<span class="segment other" style=${width(other)}></span>`}
      ${stranded > 0 && html`<span class="segment stranded" style=${width(stranded)}></span>`}
    </div>
    <ul class="legend">
      ${other > 0 && key('other', 'reserved, or not yours to see', other)}
      ${stranded > 0 && key('stranded', 'stranded: free, but no share fits', stranded)} ${key('free', 'free', free)}
    </ul>
  `;
}

const TITLES = ['Container', 'Memory used of granted', 'GPU time used of granted', 'Policy', 'Last active'];

const Shares = ({ parts }) => html`<${Table} titles=${TITLES}>
  ${parts.map(({ share, container, part }, at) => {
    const { namespace, name, uid } = share.metadata;
    return html`<tr key=${`${uid}/${container}`}>
      <td>
        <span class="swatch" style=${{ background: seriesColor(at) }}></span>
        <${PodLink} namespace=${namespace} name=${name} /> ${container}${part.wholeCard && ' (whole card)'}
      </td>
      <td><${ShareBar} used=${part.usage?.memoryMiB} granted=${part.memoryMiB} print=${memory} /></td>
      <td>${gpuTime(part)}</td>
      <td>${part.policy}</td>
      <td>${part.usage?.lastActive ? time(part.usage.lastActive) : '–'}</td>
    </tr>`;
  })}
<//>`;

/** The histories of containers in the order, and so in the colors, of the bar; those of ended pods last. */
function inOrder(containers, parts) {
  const at = (one) => {
    const found = parts.findIndex(
      ({ share, container }) => share.metadata.uid === one.uid && container === one.container,
    );
    return found < 0 ? parts.length : found;
  };
  return [...containers].sort((one, other) => at(one) - at(other));
}

function healthSentence({ healthy, cordoned, since, reason = 'no reason given' }) {
  if (healthy) return cordoned ? 'Cordoned: it takes no new vGPUs.' : 'Healthy.';
  return html`<strong class="bad">Unhealthy${since && ` since ${time(since)}`}: ${reason}.</strong>`;
}

export function Gpu({ params }) {
  const name = params.gpu ?? '';
  const gpus = useCollection('gpus', { fieldSelector: `metadata.name=${name}` });
  const gpu = gpus.items.get(name);
  const node = gpu?.status.nodeName;
  const shares = useShares(node ? '' : null, `spec.nodeName=${node}`);
  const { of: history, error } = useAnswer(`gpus/${encodeURIComponent(name)}/history`, HISTORY_PERIOD);
  if (gpus.error)
    return html`<${Missing} title="This GPU is not shown">
      ${gpus.error.message}.${gpus.error.isForbidden && ' The ClusterRole aliquot-gpu-viewer grants it.'}
    <//>`;
  if (!gpu)
    return gpus.complete ? html`<${Missing} title=${`No GPU ${name}`}>No node of Aliquot reports it now.<//>` : null;
  const { status } = gpu;
  const usage = status.usage ?? {};
  const parts = partsOf(shares.items.values(), status.uuid);
  const containers = history ? inOrder(history.containers, parts) : [];
  const title = (one) => `${one.namespace}/${one.pod}/${one.container}`;
  const chart = { end: history?.end, step: history?.stepSeconds };
  return html`
    <p class="kind">GPU</p>
    <h1>GPU ${status.index} of <${NodeLink} node=${node} /></h1>
    <p class="lead">
      ${status.model}, ${status.uuid}${status.numaNode !== undefined && `, NUMA node ${status.numaNode}`}.${' '}
      ${healthSentence(status)}
    </p>
    <section class="totals" aria-label="Figures">
      <${Figure}
        label="Memory allocated"
        value=${memory(status.memoryMiB.allocated)}
        note=${`of ${memory(status.memoryMiB.total)}`}
      />
      <${Figure}
        label="Memory used"
        value=${memory(usage.memoryMiB)}
        note=${usage.otherMemoryMiB ? `${memory(usage.otherMemoryMiB)} outside shares` : 'by all processes'}
      />
      <${Figure}
        label="Cores allocated"
        value=${percent(status.cores.allocated)}
        note=${`of ${percent(status.cores.total)}`}
      />
      <${Figure} label="GPU time" value=${percent(usage.utilizationPercent)} note="by all processes" />
      <${Figure}
        label="Shares"
        value=${plural(status.shares, 'share')}
        note=${`${plural(status.slots.free, 'slot')} free`}
      />
      ${
        usage.temperatureCelsius !== undefined &&
        html`<${Figure}
          label="Temperature"
          value=${`${usage.temperatureCelsius} °C`}
          note=${usage.powerWatts !== undefined && `${usage.powerWatts} W`}
        />`
      }
    </section>
    <section class="panel" aria-labelledby="shares">
      <h2 id="shares">Shares</h2>
      <${Segments} parts=${parts} status=${status} />
      ${
        shares.error &&
        html`<p class="warn-text">${shares.error.message}. The pods on this GPU are not yours to see.</p>`
      }
      ${parts.length > 0 && html`<${Shares} parts=${parts} />`}
    </section>
    <section class="panel" aria-labelledby="minutes">
      <h2 id="minutes">The last 15 minutes</h2>
      ${error && html`<p class="warn-text">${error.message}</p>`}
      ${
        history &&
        html`<div class="charts">
        <${Chart}
          title="Memory used, by container"
          series=${containers.map((one) => ({ label: title(one), values: memoryOf(one) }))}
          limit=${history.gpu && { label: 'all processes', values: history.gpu.usedMiB }}
          most=${status.memoryMiB.total}
          increments=${MIB_INCREMENTS}
          print=${memory}
          ...${chart}
        />
        <${Chart}
          title="GPU time used, by container"
          series=${containers.map((one) => ({ label: title(one), values: one.utilizationPercent }))}
          limit=${history.gpu && { label: 'all processes', values: history.gpu.utilizationPercent }}
          most=${100}
          increments=${PERCENT_INCREMENTS}
          print=${percent}
          ...${chart}
        />
      </div>`
      }
    </section>
    <section class="panel" aria-labelledby="health">
      <h2 id="health">Health</h2>
      ${
        history?.health.length
          ? html`<ol class="events">
            ${history.health.toReversed().map(
              (change) => html`<li key=${change.at}>
                <time datetime=${change.at}>${time(change.at)}</time>
                <span class=${change.healthy ? 'good' : 'bad'}>
                  ${change.healthy ? 'healthy' : `unhealthy: ${change.reason ?? 'no reason given'}`}
                </span>
              </li>`,
            )}
          </ol>`
          : html`<p class="quiet">No change of health since the node agent’s start.</p>`
      }
    </section>
  `;
}
