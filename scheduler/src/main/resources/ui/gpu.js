// One GPU: its shares as a bar, the last minutes by container, and its health.
import { html, useState } from './standalone.module.js';
import { request } from './api.js';
import { Link, Missing, ShareBar, fraction, memory, percent, plural, time, useCollection, usePeriodically, useShares } from './parts.js';
import { Chart, MIB_INCREMENTS, PERCENT_INCREMENTS, seriesColor } from './chart.js';

const HISTORY_PERIOD = 5_000;

/** What containers hold of a GPU, largest first. */
function partsOf(shares, uuid) {
  const parts = [];
  for (const share of shares)
    for (const container of share.status.containers)
      for (const part of container.gpus)
        if (part.uuid === uuid) parts.push({ share, container: container.name, part });
  return parts.sort((one, other) => other.part.memoryMiB - one.part.memoryMiB);
}

function Segments({ parts, status }) {
  const { total, allocated } = status.memoryMiB;
  const known = parts.reduce((sum, { part }) => sum + part.memoryMiB, 0);
  const width = (mib) => ({ width: `${fraction(mib, Math.max(total, allocated)) * 100}%` });
  const other = allocated - known;
  const stranded = Math.max(0, Math.min(status.strandedMemoryMiB ?? 0, total - allocated));
  const free = Math.max(0, total - allocated - stranded);
  const words = [
    ...parts.map(({ share, container, part }) => `${share.metadata.name}/${container} ${memory(part.memoryMiB)}`),
    other > 0 && `reserved or not yours to see ${memory(other)}`,
    stranded > 0 && `stranded ${memory(stranded)}`,
    `free ${memory(free)}`,
  ].filter(Boolean);
  return html`
    <div class="segments" role="img" aria-label=${`Memory of ${memory(total)}: ${words.join(', ')}`}>
      ${parts.map(
        ({ share, container, part }, at) => html`<span
          key=${`${share.metadata.uid}/${container}`}
          class="segment"
          title=${`${share.metadata.namespace}/${share.metadata.name}/${container}: ${memory(part.memoryMiB)}`}
          style=${{ ...width(part.memoryMiB), background: seriesColor(at) }}
          >${fraction(part.memoryMiB, total) > 0.05 && share.metadata.name}</span
        >`,
      )}
      ${other > 0 && html`<span class="segment other" style=${width(other)}></span>`}
      ${stranded > 0 && html`<span class="segment stranded" style=${width(stranded)}></span>`}
    </div>
    <ul class="legend">
      ${other > 0 && html`<li><span class="swatch other"></span>reserved, or not yours to see <span class="quiet">${memory(other)}</span></li>`}
      ${stranded > 0 && html`<li><span class="swatch stranded"></span>stranded: free, but no share fits <span class="quiet">${memory(stranded)}</span></li>`}
      <li><span class="swatch free"></span>free <span class="quiet">${memory(free)}</span></li>
    </ul>
  `;
}

function Shares({ parts }) {
  return html`<div class="table-frame">
    <table>
      <thead>
        <tr><th scope="col">Container</th><th scope="col">Memory used of granted</th><th scope="col">GPU time used of granted</th><th scope="col">Policy</th><th scope="col">Last active</th></tr>
      </thead>
      <tbody>
        ${parts.map(({ share, container, part }, at) => {
          const { namespace, name, uid } = share.metadata;
          return html`<tr key=${`${uid}/${container}`}>
            <td>
              <span class="swatch" style=${{ background: seriesColor(at) }}></span>
              <${Link} to=${{ view: 'pod', namespace, name }}><span class="quiet">${namespace}/</span>${name}<//> ${container}${part.wholeCard && ' (whole card)'}
            </td>
            <td><${ShareBar} used=${part.usage?.memoryMiB} granted=${part.memoryMiB} print=${memory} /></td>
            <td>${percent(part.usage?.utilizationPercent)} of ${part.cores && part.policy !== 'none' ? percent(part.cores) : 'all, no limit'}</td>
            <td>${part.policy}</td>
            <td>${part.usage?.lastActive ? time(part.usage.lastActive) : '–'}</td>
          </tr>`;
        })}
      </tbody>
    </table>
  </div>`;
}

const sum = (one, other) => (one === null && other === null ? null : (one ?? 0) + (other ?? 0));

/** The histories of containers in the order, and so in the colors, of the bar; those of ended pods last. */
function inOrder(containers, parts) {
  const at = (one) => {
    const found = parts.findIndex(({ share, container }) => share.metadata.uid === one.uid && container === one.container);
    return found < 0 ? parts.length : found;
  };
  return [...containers].sort((one, other) => at(one) - at(other));
}

export function Gpu({ params }) {
  const name = params.gpu ?? '';
  const gpus = useCollection('gpus', { fieldSelector: `metadata.name=${name}` });
  const gpu = gpus.items.get(name);
  const node = gpu?.status.nodeName;
  const shares = useShares(node ? '' : null, `spec.nodeName=${node}`);
  const [{ of: history, error }, setHistory] = useState({});
  usePeriodically(
    async (signal) => {
      try {
        setHistory({ of: await request(`gpus/${encodeURIComponent(name)}/history`, {}, { signal }) });
      } catch (failure) {
        if (!signal.aborted) setHistory((known) => ({ ...known, error: failure }));
      }
    },
    HISTORY_PERIOD,
    [name],
  );
  if (gpus.error)
    return html`<${Missing} title="This GPU is not shown">${gpus.error.message}${gpus.error.isForbidden && '. The ClusterRole aliquot-gpu-viewer grants it'}.<//>`;
  if (!gpu)
    return gpus.complete ? html`<${Missing} title=${`No GPU ${name}`}>No node of Aliquot reports it now.<//>` : null;
  const { status } = gpu;
  const parts = partsOf(shares.items.values(), status.uuid);
  const containers = history ? inOrder(history.containers, parts) : [];
  const title = (one) => `${one.namespace}/${one.pod}/${one.container}`;
  const chart = { end: history?.end, step: history?.stepSeconds };
  return html`
    <p class="kind">GPU</p>
    <h1>GPU ${status.index} of <${Link} to=${{ view: 'cluster', node }}>${node}<//></h1>
    <p class="lead">
      ${status.model}, ${status.uuid}${status.numaNode !== undefined && `, NUMA node ${status.numaNode}`}.${' '}
      ${status.healthy
        ? status.cordoned ? 'Cordoned: it takes no new vGPUs.' : 'Healthy.'
        : html`<strong class="bad">Unhealthy${status.since && ` since ${time(status.since)}`}: ${status.reason ?? 'no reason given'}.</strong>`}
    </p>
    <section class="totals" aria-label="Figures">
      <div class="figure"><span class="figure-label">Memory allocated</span><span class="figure-value">${memory(status.memoryMiB.allocated)}</span><span class="figure-note">of ${memory(status.memoryMiB.total)}</span></div>
      <div class="figure"><span class="figure-label">Memory used</span><span class="figure-value">${memory(status.usage?.memoryMiB)}</span><span class="figure-note">${status.usage?.otherMemoryMiB ? `${memory(status.usage.otherMemoryMiB)} outside shares` : 'by all processes'}</span></div>
      <div class="figure"><span class="figure-label">Cores allocated</span><span class="figure-value">${percent(status.cores.allocated)}</span><span class="figure-note">of ${percent(status.cores.total)}</span></div>
      <div class="figure"><span class="figure-label">GPU time</span><span class="figure-value">${percent(status.usage?.utilizationPercent)}</span><span class="figure-note">by all processes</span></div>
      <div class="figure"><span class="figure-label">Shares</span><span class="figure-value">${plural(status.shares, 'share')}</span><span class="figure-note">${plural(status.slots.free, 'slot')} free</span></div>
      ${status.usage?.temperatureCelsius !== undefined &&
      html`<div class="figure"><span class="figure-label">Temperature</span><span class="figure-value">${status.usage.temperatureCelsius} °C</span><span class="figure-note">${status.usage.powerWatts !== undefined && `${status.usage.powerWatts} W`}</span></div>`}
    </section>
    <section class="panel" aria-labelledby="shares">
      <h2 id="shares">Shares</h2>
      <${Segments} parts=${parts} status=${status} />
      ${shares.error && html`<p class="warn-text">${shares.error.message}. The pods on this GPU are not yours to see.</p>`}
      ${parts.length > 0 && html`<${Shares} parts=${parts} />`}
    </section>
    <section class="panel" aria-labelledby="minutes">
      <h2 id="minutes">The last 15 minutes</h2>
      ${error && html`<p class="warn-text">${error.message}</p>`}
      ${history &&
      html`<div class="charts">
        <${Chart}
          title="Memory used, by container"
          series=${containers.map((one) => ({ label: title(one), values: one.chargedMiB.map((value, at) => sum(value, one.unattributedMiB[at])) }))}
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
      </div>`}
    </section>
    <section class="panel" aria-labelledby="health">
      <h2 id="health">Health</h2>
      ${history?.health.length
        ? html`<ol class="events">
            ${history.health.toReversed().map(
              (change) => html`<li key=${change.at}>
                <time datetime=${change.at}>${time(change.at)}</time>
                <span class=${change.healthy ? 'good' : 'bad'}>${change.healthy ? 'healthy' : `unhealthy: ${change.reason ?? 'no reason given'}`}</span>
              </li>`,
            )}
          </ol>`
        : html`<p class="quiet">No change of health since the node agent’s start.</p>`}
    </section>
  `;
}
