// One pod: what it holds and uses, and the live resize, the only request of this page that changes anything.
import { html, useEffect, useState } from './standalone.module.js';
import { mergePatch, sharePath } from './api.js';
import {
  GpuLink,
  Missing,
  NodeLink,
  ShareBar,
  Table,
  announce,
  duration,
  exactMemory,
  gpuTime,
  idleSince,
  memory,
  percent,
  plural,
  time,
  useAnswer,
  useCollection,
} from './parts.js';
import { Chart, MIB_INCREMENTS, PERCENT_INCREMENTS, memoryOf, timeOf, total } from './chart.js';
import { Explanation, requestWords } from './pending.js';

const HISTORY_PERIOD = 5_000;
const RULES_PERIOD = 60_000;
const TYPING_PAUSE = 400;
const HINT = 'No container restarts. A share may become smaller than its use; further allocations then fail.';
const POLICIES = {
  fixed: 'fixed: what is granted is the limit',
  elastic: 'elastic: also what others leave idle',
  none: 'none: no limit',
};

const gpuName = (uuid) => uuid.toLowerCase();
const isUnset = (value) => value === undefined || value === null;

/** What changes of a container: only fields that differ from what it has. */
function changesOf(container, edit) {
  const changes = {};
  for (const field of ['memoryMiB', 'cores'])
    if (edit[field] !== undefined && edit[field] !== '' && Number(edit[field]) !== container[field])
      changes[field] = Number(edit[field]);
  if (edit.policy && edit.policy !== container.policy) changes.policy = edit.policy;
  return changes;
}

function patchOf(share, edits) {
  const containers = share.spec.containers
    .map((container) => ({ name: container.name, ...changesOf(container, edits[container.name] ?? {}) }))
    .filter((container) => Object.keys(container).length > 1);
  return containers.length === 0
    ? null
    : { metadata: { resourceVersion: share.metadata.resourceVersion }, spec: { containers } };
}

/** The most that a container can hold of each of its GPUs, by what is free there; null if that is not known. */
function possible(share, container, field, gpus) {
  const parts = share.status.containers.find((one) => one.name === container)?.gpus ?? [];
  const rooms = parts.map((part) => {
    const status = gpus?.items.get(gpuName(part.uuid))?.status;
    return (
      status && {
        gpu: `GPU ${status.index} of ${status.nodeName}`,
        free: status[field].free,
        most: part[field] + Math.max(0, status[field].free),
      }
    );
  });
  return rooms.length > 0 && rooms.every(Boolean)
    ? rooms.reduce((tightest, room) => (room.most < tightest.most ? room : tightest))
    : null;
}

function refusal(error) {
  if (error.status === 403) return `${error.message}. The ClusterRole aliquot-resize grants the right to resize.`;
  if (error.status === 409)
    return 'The pod changed meanwhile. The form shows its current values; check them and apply again.';
  return error.causes.length > 0 ? error.causes.join('; ') : error.message;
}

function Resize({ share, gpus }) {
  const [edits, setEdits] = useState({});
  const [check, setCheck] = useState(null);
  const [applying, setApplying] = useState(false);
  const patch = patchOf(share, edits);
  const { of: explanation } = useAnswer(
    sharePath(share.metadata.namespace, share.metadata.name, '/explain'),
    RULES_PERIOD,
  );
  const wanted = JSON.stringify(patch?.spec ?? null);
  const path = sharePath(share.metadata.namespace, share.metadata.name);

  useEffect(() => {
    if (!patch) {
      setCheck((known) => (known?.done ? known : null));
      return undefined;
    }
    setCheck({ text: 'Checking …' });
    const control = new AbortController();
    const timer = setTimeout(async () => {
      try {
        await mergePatch(path, { spec: patch.spec }, { dryRun: 'All' }, control.signal);
        setCheck({ fits: true, text: 'This fits now.' });
      } catch (error) {
        if (!control.signal.aborted) setCheck({ refused: true, text: refusal(error) });
      }
    }, TYPING_PAUSE);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [wanted, share.metadata.resourceVersion]);

  const edit = (container, field, value) =>
    setEdits((known) => ({ ...known, [container]: { ...known[container], [field]: value } }));
  const apply = async (event) => {
    event.preventDefault();
    if (!patch || applying) return;
    setApplying(true);
    try {
      await mergePatch(path, patch);
      setEdits({});
      setCheck({ done: true, text: `Resized at ${time(Date.now())}.` });
      announce('Resized.');
    } catch (error) {
      setCheck({ refused: true, text: refusal(error) });
    }
    setApplying(false);
  };

  return html`<form class="resize" onSubmit=${apply} aria-label="Resize">
    ${share.spec.containers.map((container) => {
      const memoryRoom = possible(share, container.name, 'memoryMiB', gpus);
      const coresRoom = possible(share, container.name, 'cores', gpus);
      const edited = edits[container.name] ?? {};
      const id = (field) => `${field}-${container.name}`;
      const policy = edited.policy ?? container.policy ?? '';
      return html`<fieldset key=${container.name}>
        <legend>Container ${container.name}</legend>
        <div class="control">
          <label for=${id('memory')}>Memory of each GPU, in MiB</label>
          <input
            id=${id('memory')}
            type="number"
            min="1"
            step="1"
            placeholder=${isUnset(container.memoryMiB) ? 'GPUs differ' : ''}
            value=${edited.memoryMiB ?? container.memoryMiB ?? ''}
            aria-describedby=${id('memory-room')}
            onInput=${(event) => edit(container.name, 'memoryMiB', event.target.value)}
          />
          <span id=${id('memory-room')} class="quiet">
            ${
              memoryRoom
                ? `up to ${exactMemory(memoryRoom.most)}: ${memoryRoom.gpu} has ${exactMemory(memoryRoom.free)} free`
                : 'what you type is checked against the GPU'
            }
          </span>
        </div>
        <div class="control">
          <label for=${id('cores')}>Cores of each GPU, in %</label>
          <input
            id=${id('cores')}
            type="number"
            min="0"
            max="100"
            step="1"
            placeholder=${isUnset(container.cores) ? 'GPUs differ' : ''}
            value=${edited.cores ?? container.cores ?? ''}
            aria-describedby=${id('cores-room')}
            onInput=${(event) => edit(container.name, 'cores', event.target.value)}
          />
          <span id=${id('cores-room')} class="quiet">
            ${coresRoom ? `up to ${percent(coresRoom.most)}: ${percent(coresRoom.free)} free; ` : ''}0 % is no limit
          </span>
        </div>
        <div class="control">
          <label for=${id('policy')}>Policy of cores</label>
          <select
            id=${id('policy')}
            value=${policy}
            onChange=${(event) => edit(container.name, 'policy', event.target.value)}
          >
            ${isUnset(container.policy) && html`<option value="">GPUs differ</option>`}
            ${Object.entries(POLICIES).map(
              ([one, label]) => html`<option key=${one} value=${one} selected=${one === policy}>${label}</option>`,
            )}
          </select>
          ${policy === 'none' && html`<span class="quiet">cores are not limited</span>`}
        </div>
      </fieldset>`;
    })}
    ${explanation?.allowed && html`<p class="quiet">Allowed in this namespace: ${explanation.allowed}.</p>`}
    <div class="apply">
      <button type="submit" class="primary" disabled=${!patch || applying || Boolean(check?.refused)}>
        ${applying ? 'Applying …' : 'Apply'}
      </button>
      <button type="button" disabled=${Object.keys(edits).length === 0} onClick=${() => (setEdits({}), setCheck(null))}>
        Reset
      </button>
      <p role="status" class=${check?.refused ? 'bad' : check?.fits || check?.done ? 'good' : 'quiet'}>
        ${check?.text ?? HINT}
      </p>
    </div>
  </form>`;
}

function History({ history, label }) {
  const { containers } = history;
  const granted = total(containers.map((one) => one.grantedMiB));
  const cores = total(containers.map((one) => one.grantedPercent));
  const line = (values) => (values.some((value) => value !== null) ? { label: 'granted', values } : null);
  return html`
    <${Chart}
      title=${`Memory used of ${label}, last 15 minutes`}
      series=${containers.map((one) => ({ label: one.container, values: memoryOf(one) }))}
      limit=${line(granted)}
      end=${history.end}
      step=${history.stepSeconds}
      most=${Math.max(0, ...granted.map((value) => value ?? 0))}
      increments=${MIB_INCREMENTS}
      print=${memory}
    />
    <${Chart}
      title=${`GPU time used of ${label}, last 15 minutes`}
      series=${containers.flatMap((one, at) => timeOf(one, one.container, at))}
      limit=${line(cores)}
      end=${history.end}
      step=${history.stepSeconds}
      most=${100}
      increments=${PERCENT_INCREMENTS}
      print=${percent}
    />
  `;
}

const TITLES = [
  'Container',
  'GPU',
  'Memory used of granted',
  'GPU time used of granted',
  'Processes',
  'Refused allocations',
  'Throttled',
  'Last active',
];

const Held = ({ share, gpus }) => html`<${Table} titles=${TITLES}>
  ${share.status.containers.flatMap((container) =>
    container.gpus.map((part) => {
      const usage = part.usage ?? {};
      const gpu = gpus?.items.get(gpuName(part.uuid));
      return html`<tr key=${`${container.name}/${part.uuid}`}>
        <td>${container.name}</td>
        <td>
          <${GpuLink} uuid=${part.uuid}>
            ${gpu ? `GPU ${gpu.status.index} of ${gpu.status.nodeName}` : part.uuid}
          <//>
          ${part.wholeCard && ' (whole card)'}
          ${
            gpu?.status.healthy === false &&
            html` <span class="bad">unhealthy: ${gpu.status.reason ?? 'no reason given'}</span>`
          }
        </td>
        <td><${ShareBar} used=${usage.memoryMiB} granted=${part.memoryMiB} print=${memory} /></td>
        <td>${gpuTime(part)}</td>
        <td>${isUnset(usage.processes) ? '–' : plural(usage.processes, 'process', 'processes')}</td>
        <td class=${usage.deniedAllocations ? 'warn-text' : ''}>
          ${isUnset(usage.deniedAllocations) ? '–' : plural(usage.deniedAllocations, 'allocation')}
        </td>
        <td>${isUnset(usage.throttledSeconds) ? '–' : duration(usage.throttledSeconds * 1000)}</td>
        <td>${usage.lastActive ? time(usage.lastActive) : '–'}</td>
      </tr>`;
    }),
  )}
<//>`;

export function Pod({ params }) {
  const { namespace = '', name = '' } = params;
  const shares = useCollection(`namespaces/${encodeURIComponent(namespace)}/gpushares`, {
    fieldSelector: `metadata.name=${name}`,
  });
  const share = shares.items.get(`${namespace}/${name}`);
  const node = share?.status.nodeName;
  const gpus = useCollection(node ? 'gpus' : null, { fieldSelector: `spec.nodeName=${node}` });
  const holds = Boolean(node);
  const history = useAnswer(holds ? sharePath(namespace, name, '/history') : null, HISTORY_PERIOD);
  if (shares.error)
    return html`<${Missing} title=${`Pod ${namespace}/${name} is not shown`}>${shares.error.message}<//>`;
  if (!share)
    return shares.complete
      ? html`<${Missing} title=${`No pod ${namespace}/${name}`}>
          It has ended, or it neither holds nor requests a GPU.
        <//>`
      : null;
  const { status, metadata } = share;
  const idle = idleSince(share);
  const isWhole = status.containers.some((container) => container.gpus.some((part) => part.wholeCard));
  const label = (uuid) => {
    const gpu = gpus?.items.get(gpuName(uuid));
    return gpu ? `GPU ${gpu.status.index}` : uuid;
  };
  return html`
    <p class="kind">Pod</p>
    <h1><span class="quiet">${namespace}/</span>${name}</h1>
    <p class="lead">
      ${status.phase}${node && html` on <${NodeLink} node=${node} />`}.${' '}
      ${
        holds
          ? `Holds ${memory(status.memoryMiB)}${idle ? `, idle since ${time(idle)}` : ''}.`
          : `Requests ${requestWords(share)}.`
      }
      ${metadata.creationTimestamp && ` Created ${time(metadata.creationTimestamp)}.`} Priority ${status.priority}.
    </p>
    ${
      !holds &&
      html`<section class="panel" aria-labelledby="why">
        <h2 id="why">Why it is Pending</h2>
        <${Explanation} namespace=${namespace} name=${name} />
      </section>`
    }
    ${
      holds &&
      html`
      <section class="panel" aria-labelledby="held">
        <h2 id="held">What it holds</h2>
        <${Held} share=${share} gpus=${gpus} />
      </section>
      <section class="panel" aria-labelledby="resize">
        <h2 id="resize">Resize</h2>
        ${
          isWhole
            ? html`<p class="quiet">The pod holds whole cards, which are not resized.</p>`
            : html`<${Resize} key=${metadata.uid} share=${share} gpus=${gpus} />`
        }
      </section>
      <section class="panel" aria-labelledby="history">
        <h2 id="history">Granted and used</h2>
        ${history.error && html`<p class="warn-text">${history.error.message}</p>`}
        <div class="charts">
          ${Object.entries(history.of ?? {}).map(
            ([uuid, one]) => html`<${History} key=${uuid} history=${one} label=${label(uuid)} />`,
          )}
        </div>
      </section>
    `
    }
    ${
      metadata.labels &&
      html`<section class="panel" aria-labelledby="labels">
      <h2 id="labels">Labels</h2>
      <ul class="labels">
        ${Object.entries(metadata.labels).map(([key, value]) => html`<li key=${key}>${key}=${value}</li>`)}
      </ul>
    </section>`
    }
  `;
}
