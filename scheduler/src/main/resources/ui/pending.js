// Pending pods by reason, each with what would fit and what is in the way.
import { html, useMemo, useState } from './standalone.module.js';
import { sharePath } from './api.js';
import {
  GpuLink,
  Missing,
  Namespaces,
  NodeLink,
  PodLink,
  Table,
  count,
  duration,
  exactMemory,
  percent,
  plural,
  time,
  useAnswer,
  useShares,
} from './parts.js';

const EXPLAIN_PERIOD = 15_000;
const OPEN_GROUPS = 4;
/** Pods of a group in the document: at first, and at most. */
const FEW = 15;
const MANY = 200;

/** What a Pending pod requests, in words. */
export function requestWords(share) {
  const words = share.status.containers
    .filter((container) => container.requested)
    .map(({ name, requested }, _, all) => {
      const each = [
        requested.wholeCard && 'whole cards',
        requested.memoryMiB && exactMemory(requested.memoryMiB),
        requested.memoryPercent && `${percent(requested.memoryPercent)} of the memory`,
        requested.cores > 0 && `${percent(requested.cores)} of the cores`,
      ].filter(Boolean);
      const gpus = plural(requested.gpus, 'GPU');
      return (all.length > 1 ? `${name}: ` : '') + (each.length > 0 ? `${gpus} with ${each.join(' and ')}` : gpus);
    });
  return words.join('; ') || 'GPUs in a way that is not valid';
}

/**
 * kube-scheduler's reasons without its counts: "0/3 nodes are available: 1 Insufficient cpu, 2 no GPU with 12000 MiB
 * free. preemption: …". They change with every node, and pods with the same reasons belong together.
 */
function reasonsOf(share) {
  const said = share.status.reason ?? '';
  const reasons = said
    .replace(/^\d+\/\d+ nodes are available: /, '')
    .replace(/\.? (?:no new claims to deallocate, )?preemption: .*$/s, '')
    .replace(/\.$/, '');
  if (reasons === said) return said || 'kube-scheduler has not reported an attempt yet';
  return reasons
    .split(/, (?=\d+ )/)
    .map((reason) => reason.replace(/^\d+ /, ''))
    .sort()
    .join('; ');
}

function group(shares) {
  const groups = new Map();
  for (const share of shares) {
    const reason = reasonsOf(share);
    if (!groups.has(reason)) groups.set(reason, []);
    groups.get(reason).push(share);
  }
  const waitingSince = (share) => share.metadata.creationTimestamp ?? '9';
  groups.forEach((pods) => pods.sort((one, other) => (waitingSince(one) < waitingSince(other) ? -1 : 1)));
  return [...groups].sort(([, one], [, other]) => other.length - one.length);
}

const commas = (parts) => parts.map((part, at) => (at > 0 ? [', ', part] : part));

const nodeNames = ({ count, examples }) => [
  `${plural(count, 'node')}: `,
  commas(examples.map((node) => html`<${NodeLink} key=${node} node=${node} />`)),
  count > examples.length && ` and ${plural(count - examples.length, 'other')}`,
];

function victim({ namespace, name, priority, terminating }) {
  const pod = name ? html`<${PodLink} namespace=${namespace} name=${name} />` : 'a pod that is not yours to see';
  return html`${pod} (priority ${priority}${terminating && ', terminating already'})`;
}

/** The scheduler's explanation of one pod, computed when it is asked for. */
export function Explanation({ namespace, name }) {
  const { of, error } = useAnswer(sharePath(namespace, name, '/explain'), EXPLAIN_PERIOD);
  if (!of) return html`<p class="quiet">${error ? error.message : 'Asking the scheduler …'}</p>`;
  return html`
    <p class="summary">${of.summary}.</p>
    ${of.allowed && html`<p class="quiet">Allowed in this namespace: ${of.allowed}.</p>`}
    <div class="columns">
      <div>
        <h3>What would fit</h3>
        <ul>
          ${of.fits.count > 0 && html`<li>The pod as it is, on ${nodeNames(of.fits)}.</li>`}
          ${of.suggestions.map((suggestion) => html`<li key=${suggestion}>${suggestion}</li>`)}
          ${
            of.fits.count === 0 &&
            of.suggestions.length === 0 &&
            html`<li>No smaller request of one number would fit now.</li>`
          }
          ${of.preemptionOptions.map(
            (option) => html`<li key=${option.node}>
              The pod as it is, on <${NodeLink} node=${option.node} />, without${' '}
              ${commas(option.victims.map(victim))}.
            </li>`,
          )}
        </ul>
      </div>
      <div>
        <h3>What is in the way</h3>
        <ul>
          ${of.kubeScheduler && html`<li>kube-scheduler says: ${of.kubeScheduler}</li>`}
          ${of.refusals.map(
            (refusal) => html`<li key=${refusal.reason}>
              ${refusal.reason} (${nodeNames(refusal.nodes)})${refusal.unresolvable && '; evictions would not help'}
            </li>`,
          )}
          ${of.nearest.flatMap((node) =>
            node.gpus.length === 0
              ? [html`<li>On <${NodeLink} node=${node.node} /> each vGPU fits alone, but not all together.</li>`]
              : node.gpus.map(
                  (gpu) => html`<li>
                    On <${NodeLink} node=${node.node} />,${' '}
                    <${GpuLink} uuid=${gpu.gpu}>${gpu.gpu}<//> ${gpu.text || 'lacks nothing'}.
                  </li>`,
                ),
          )}
        </ul>
      </div>
    </div>
    ${error && html`<p class="warn-text">${error.message}</p>`}
  `;
}

function Group({ reason, pods, open }) {
  const [shown, setShown] = useState(open);
  const [all, setAll] = useState(false);
  const oldest = pods[0].metadata;
  const since = oldest.creationTimestamp;
  return html`<details class="panel pending" open=${shown} onToggle=${(event) => setShown(event.target.open)}>
    <summary>
      <h2>${reason}</h2>
      <span class="quiet">
        ${plural(pods.length, 'pod')}${since && `, waiting for up to ${duration(Date.now() - Date.parse(since))}`}
      </span>
    </summary>
    ${
      shown &&
      html`
      ${
        pods.length > 1 &&
        html`<p class="quiet">
          As for <${PodLink} namespace=${oldest.namespace} name=${oldest.name} />, which waits the longest:
        </p>`
      }
      <${Explanation} namespace=${oldest.namespace} name=${oldest.name} />
      <${Table} titles=${['Pod', 'Requests', 'Priority', 'Waiting since']}>
        ${(all ? pods.slice(0, MANY) : pods.slice(0, FEW)).map(
          (share) => html`<tr key=${share.metadata.uid}>
            <td class="name"><${PodLink} namespace=${share.metadata.namespace} name=${share.metadata.name} /></td>
            <td>${requestWords(share)}</td>
            <td>${share.status.priority}</td>
            <td>${share.metadata.creationTimestamp ? time(share.metadata.creationTimestamp) : '–'}</td>
          </tr>`,
        )}
      <//>
      ${
        pods.length > FEW &&
        !all &&
        html`<button type="button" onClick=${() => setAll(true)}>
          Show ${pods.length > MANY ? `the first ${MANY}` : `all ${plural(pods.length, 'pod')}`}
        </button>`
      }
    `
    }
  </details>`;
}

export function Pending({ params, change }) {
  const shares = useShares(params.namespace ?? '', 'status.phase=Pending');
  const groups = useMemo(() => group(shares.items.values()), [shares.items, shares.version]);
  const waiting = shares.items.size;
  if (shares.error)
    return html`<h1>Pending</h1><${Namespaces} error=${shares.error} namespace=${params.namespace} change=${change} />`;
  return html`
    <h1>Pending</h1>
    <p class="lead">
      ${plural(waiting, 'pod')} ${waiting === 1 ? 'waits' : 'wait'} for GPUs, by kube-scheduler’s reasons.
    </p>
    ${shares.missing.map((error) => html`<p class="warn-text">${error.message}</p>`)}
    ${
      shares.items.size === 0 && shares.complete
        ? html`<${Missing} title="No Pending pod">Each pod that requests a GPU holds it.<//>`
        : groups.map(
            ([reason, pods], at) =>
              html`<${Group} key=${reason} reason=${reason} pods=${pods} open=${at < OPEN_GROUPS} />`,
          )
    }
  `;
}
