{{- define "longdoc.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "longdoc.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "longdoc.labels" -}}
{{ include "longdoc.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* Seconds from the deletion of a pod to SIGKILL: longer than a complete drain. */ -}}
{{- define "longdoc.gracePeriod" -}}
{{- $drain := addf .Values.settings.drain_delay_s .Values.settings.drain_timeout_s -}}
{{- add .Values.preStopSeconds (ceil $drain) 5 -}}
{{- end -}}

{{- define "longdoc.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* A setting as the text of an environment variable. YAML's large numbers are floats, which would print as 1e+06. */ -}}
{{- define "longdoc.setting" -}}
{{- if kindIs "float64" . -}}
{{- if eq . (floor .) -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}
