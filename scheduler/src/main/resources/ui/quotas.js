// The ResourceQuotas that limit GPUs: what pods hold of each, and what is left.
import { html } from './standalone.module.js';
import {
  Link,
  Missing,
  Namespaces,
  ShareBar,
  Table,
  count,
  exactMemory,
  percent,
  plural,
  useNamespaced,
} from './parts.js';

/** Quotas in the document at most. */
const MANY = 200;

/** Pods may hold more than a quota allows that was lowered since. */
const Part = ({ of, print }) =>
  of
    ? html`<${ShareBar} used=${of.used} granted=${of.hard} print=${print} />
        <div class=${of.used < of.hard ? 'quiet' : 'warn-text'}>${print(Math.max(0, of.hard - of.used))} left</div>`
    : '–';

const Row = ({ metadata, status }) => html`<tr>
  <td class="name">
    <${Link} to=${{ view: 'pods', namespace: metadata.namespace }}
      ><span class="quiet">${metadata.namespace}/</span>${metadata.name}<//
    >
  </td>
  <td><${Part} of=${status.memoryMiB} print=${exactMemory} /></td>
  <td><${Part} of=${status.cores} print=${percent} /></td>
  <td><${Part} of=${status.vgpus} print=${count} /></td>
</tr>`;

export function Quotas({ params, change }) {
  const quotas = useNamespaced('gpuquotas', params.namespace ?? '');
  const shown = [...quotas.items].sort(([one], [other]) => (one < other ? -1 : 1)).slice(0, MANY);
  if (quotas.error)
    return html`<h1>Quotas</h1>
      <${Namespaces} error=${quotas.error} namespace=${params.namespace} change=${change} what="quotas" />`;
  return html`
    <h1>Quotas</h1>
    <p class="lead">
      ${plural(quotas.items.size, 'ResourceQuota limits', 'ResourceQuotas limit')} GPUs here.
      ${quotas.items.size > MANY && ` The first ${MANY} are shown; write a namespace above to see others.`}
    </p>
    ${quotas.missing.map((error) => html`<p class="warn-text">${error.message}</p>`)}
    ${
      shown.length === 0 && quotas.complete
        ? html`<${Missing} title="No quota of GPUs">No ResourceQuota limits what the pods may hold.<//>`
        : html`<${Table} titles=${['Quota', 'Memory used of allowed', 'Cores', 'vGPUs']}>
          ${shown.map(([key, quota]) => html`<${Row} key=${key} ...${quota} />`)}
        <//>`
    }
  `;
}
